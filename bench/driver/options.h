// The options of `lockstep bench <collective>` and `lockstep bench ddp`, and the parsing of their values.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/worker/operation.h"
#include "lockstep/base/status.h"

namespace lockstep::bench {

struct SizeRange {
  std::size_t min = 8;
  std::size_t max = std::size_t{128} << 20;
};

// Virtual hosts (network namespaces), with the same number of ranks on each. {0, 0}: this host only.
struct HostLayout {
  int hosts = 0;
  int ranks_each = 0;
  bool enabled() const { return hosts > 0; }
};

struct BenchOptions {
  Collective collective = Collective::all_reduce;
  int nproc = 2;
  SizeRange bytes = {};
  std::size_t step = 4;
  DType dtype = DType::f32;
  std::vector<Memory> memories = {Memory::registered, Memory::private_memory};
  std::vector<std::string> peers = {};  // of kPeers
  int rounds = 7;
  int iterations = 0;  // per round; 0: by size
  bool warm = false;
  std::string json_file = {};
  HostLayout hosts = {};
  std::string rate = {};  // as tc(8) takes it; empty: links are not shaped
};

struct DdpBenchOptions {
  std::string model = "mlp";      // mlp, cnn, gpt
  int batch = 64;                 // samples per rank
  std::string optimizer = "sgd";  // of kDdpOptimizers
  int nproc = 2;
  int rounds = 7;  // each runs every engine once, in random order
  int steps = 5;   // per round
  // Of kDdpBackends; the first is the one that the others are compared with.
  std::vector<std::string> backends = {"lockstep"};
  std::vector<std::string> peers = {};  // torch
  HostLayout hosts = {};
  std::string rate = {};  // as above
  std::string json_file = {};
};

inline constexpr std::string_view kPeers[] = {"gloo", "openmpi", "mpich"};
inline constexpr std::string_view kDdpBackends[] = {"lockstep", "gloo", "openmpi", "mpich"};
inline constexpr std::string_view kDdpOptimizers[] = {"sgd", "adamw"};
inline constexpr int kMaxRanks = 256;

// Values as users write them. The error message describes what was expected.
Result<std::size_t> parse_bytes(const std::string& text);           // "8", "64K", "25M", "1G"; K = 1024
Result<SizeRange> parse_size_range(const std::string& text);        // "MIN:MAX" or one size
Result<HostLayout> parse_hosts(const std::string& text);            // "2:2", or "2": one rank on each
Result<DType> parse_dtype(const std::string& text);                 // "f32"
Result<std::vector<Memory>> parse_memory(const std::string& text);  // "registered", "private", "both"
Result<std::string> parse_rate(const std::string& text);            // "1gbit", "100mbit"

// Rejects values out of range and combinations that cannot work, such as a rate without hosts.
Status validate(const BenchOptions& options);
Status validate_ddp(const DdpBenchOptions& options);

// For headings: "2 hosts x 1 ranks, links of 1gbit", or "2 ranks".
std::string describe_layout(int ranks, const HostLayout& hosts, const std::string& rate);
// The sizes of a run: min, min * step, ..., and max.
std::vector<std::size_t> sizes_of(const BenchOptions& options);
// Timed operations per round at this size: as requested, or fewer for larger sizes.
int iterations_at(const BenchOptions& options, std::size_t bytes);

}  // namespace lockstep::bench
