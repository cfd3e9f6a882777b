// Files that must survive a crash: written whole, fsynced, hashed; and errors of the disk as readable messages.
//
// All calls block for as long as the disk takes. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint {

// Why `path` could not be, e.g., "written": disk full, no permission, read-only, a file in place of a folder, ...
// and what to do. `error_number` is an errno. resource_exhausted for lack of space, else unavailable; not_found for
// what does not exist.
Status file_error(int error_number, std::string_view done, const std::string& path);

using Pieces = std::vector<std::span<const std::byte>>;
std::uint64_t total_bytes(const Pieces& pieces);

// Creates the file (it must not exist) with the pieces one after the other; on return they are on the disk, but the
// name may not be: see sync_folder(). The caller must remove what a failed call leaves.
Result<FileRecord> write_file(const std::string& folder, const std::string& name, const Pieces& pieces);
// So that names made, renamed or removed in it survive a loss of power.
Status sync_folder(const std::string& folder);

// A file's content.
struct FileBytes {
  std::unique_ptr<std::byte[]> data;
  std::size_t size = 0;
  std::span<const std::byte> span() const { return {data.get(), size}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data.get()), size}; }
};
Result<FileBytes> read_file(const std::string& path);
// protocol_error unless it has exactly the recorded size and hash. The hash is that of the bytes returned.
Result<FileBytes> read_checked_file(const std::string& folder, const FileRecord& record);
// The same without keeping the bytes. They are read from the disk, not from the page cache, if the system allows it.
Status check_file(const std::string& folder, const FileRecord& record);
// Only that it exists and has the recorded size.
Status check_size(const std::string& folder, const FileRecord& record);

}  // namespace lockstep::checkpoint
