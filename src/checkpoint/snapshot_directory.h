// A folder of snapshots: which there are, and the newest that is whole.
//
//   run/snapshot-000017-step-3400/    snapshot.json, model.safetensors, ...
//   run/snapshot-000018-step-3600/
//   run/.lock                         names the writer (folder_lock.h)
//   run/.tmp-...                      what a writer is creating or removing (snapshot_writer.h)
//
// The serial number determines which snapshot is newer, also after a return to an earlier step. Reading takes no lock:
// a snapshot is never changed after it got its name. Calls block for as long as the disk takes. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/files.h"
#include "checkpoint/manifest.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/skipped_snapshot.h"

namespace lockstep::checkpoint {

struct SnapshotName {
  std::uint64_t serial = 0;
  std::int64_t step = 0;

  std::string to_string() const;  // "snapshot-000017-step-3400"
  static std::optional<SnapshotName> parse(std::string_view text);
  friend auto operator<=>(const SnapshotName&, const SnapshotName&) = default;  // NOLINT(modernize-use-nullptr)
};

// The newest first. Empty if the folder does not exist; unavailable if it is not a folder or cannot be read. Names
// only: nothing is verified.
Result<std::vector<SnapshotName>> list_snapshots(const std::string& folder);

// Verifies the manifest and the files' sizes, but does not read the files.
Result<Manifest> glance_at_snapshot(const std::string& path);

// A snapshot whose every byte was verified.
struct Snapshot {
  std::string path;
  Manifest manifest;
  std::map<std::string, FileBytes> files;  // by name
};
// protocol_error, naming the file: damaged, cut off, of another version. Others as file_error() has them.
Result<Snapshot> read_snapshot(const std::string& path);

struct NewestSnapshot {
  std::optional<Snapshot> snapshot;
  std::vector<SkippedSnapshot> skipped_snapshots;  // newer ones, the newest first; each was also logged as a warning
};
// The newest valid snapshot. None if there are none; an error if there are some and none is valid, so that a damaged
// run is not mistaken for a new one.
Result<NewestSnapshot> read_newest_snapshot(const std::string& folder);

}  // namespace lockstep::checkpoint
