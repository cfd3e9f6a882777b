// Writes a snapshot so that a crash at any point leaves the older ones as they were.
//
// The files are written to a folder with a temporary name, fsynced, read back and compared with their hashes; then the
// folder is renamed, and the folder around it is fsynced. Only then older snapshots are removed: first they are
// renamed, then their files are deleted. Temporary folders of writers that died are removed by the next one.
//
// In an elastic job the generation with the highest number is the one that continues. A process of an older one that
// was stopped, or cut off, may still try to write: it is refused if a newer one has written, and if a newer one has
// taken over the lock meanwhile. Removing touches only snapshots that are older than the one that was just published.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "checkpoint/files.h"
#include "checkpoint/manifest.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint {

struct OutputFile {
  std::string name;
  Pieces pieces;
};

struct WriteOptions {
  // How many whole snapshots to keep, this one included; at least 1. Damaged ones do not count.
  int keep_last = 3;
  // How long to wait for another writer to the same folder.
  std::chrono::milliseconds lock_timeout{30'000};
};

// Returns the path of the new snapshot, which is durable and verified; its manifest is `manifest` with `files`, the
// time and our version filled in. The folder is created if necessary. Blocks for as long as the disk takes. On an error
// nothing is left of the new snapshot, and the older ones are untouched: resource_exhausted (disk full), unavailable
// (permission, read-only, a file in the way, ...), already_exists (another process writes, or a newer generation of the
// manifest's job has written), protocol_error (the disk returned other bytes than were written). That an old snapshot
// could not be removed is only logged.
Result<std::string> write_snapshot(const std::string& folder, Manifest manifest, std::span<const OutputFile> files,
                                   const WriteOptions& options = {});

}  // namespace lockstep::checkpoint
