// The manifest of a snapshot: a JSON file that holds what is not a tensor, and the hash of every file beside it.
//
//   {"xxh3":"<32 hex digits>","format":2,"step":1200,"epoch":3,"world_size":4,"files":[...],...}
//
// The hash at its beginning is that of every byte after it and its quotation mark, so that no byte of a snapshot is
// without a hash. Pure functions over text; no files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/checkpoint/distributed_sampler_state.h"

namespace lockstep::checkpoint {

// Version 1 had neither job nor generation, and kept the optimizer in a torch archive, "optimizer.pt". It is still
// read.
inline constexpr std::int64_t kFormatVersion = 2;
inline constexpr const char* kManifestName = "snapshot.json";

struct FileRecord {
  std::string name;  // in the snapshot's folder; letters, digits, '.', '_' and '-' only, no leading '.'
  std::uint64_t bytes = 0;
  std::string xxh3;  // XXH3, 128 bits, as 32 lower-case hexadecimal digits

  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

struct OptimizerRecord {
  std::string kind;                       // "torch::optim::Adam"
  std::vector<std::int64_t> group_sizes;  // parameters in each group

  friend bool operator==(const OptimizerRecord&, const OptimizerRecord&) = default;
};

// Text may hold any bytes; a number may be infinite or NaN.
using Scalar = std::variant<std::int64_t, double, std::string>;

struct Manifest {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::int64_t world_size = 1;
  std::string created = {};   // "2026-11-16T01:33:00Z"
  std::string lockstep = {};  // the version that wrote it
  // The elastic job that wrote it, and the generation of that job; empty and 0 for other programs. A generation of a
  // job that is older than one that has written to the folder must not write there any more (snapshot_writer.h).
  std::string job = {};
  std::int64_t generation = 0;
  std::optional<OptimizerRecord> optimizer = std::nullopt;
  std::optional<DistributedSamplerState> sampler = std::nullopt;
  std::map<std::string, Scalar> values = {};
  std::vector<FileRecord> files = {};

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// In version kFormatVersion. invalid_argument: the name of a value is not UTF-8.
Result<std::string> format_manifest(const Manifest& manifest);
// protocol_error: not a manifest, damaged, or of a later format version (naming both).
Result<Manifest> parse_manifest(std::string_view text);

}  // namespace lockstep::checkpoint
