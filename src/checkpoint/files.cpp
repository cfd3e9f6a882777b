#include "checkpoint/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>

#include "base/net/socket.h"
#include "base/unique_fd.h"
#include "checkpoint/hash.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 22;  // hashed while it is in the cache

std::string join(const std::string& folder, const std::string& name) { return folder + "/" + name; }

std::string free_space(const std::string& path) {
  struct statvfs info {};
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (::statvfs(path.c_str(), &info) != 0 && ::statvfs(folder.c_str(), &info) != 0) return "";
  return fmt::format(" ({:.1f} MB are free)",
                     1e-6 * static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize));
}

Status write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return file_error(errno, "written", path);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

struct OpenFile {
  UniqueFd fd;
  std::uint64_t bytes = 0;
};
Result<OpenFile> open_to_read(const std::string& path) {
  // O_NONBLOCK: a named pipe under this name must not keep us waiting.
  OpenFile file{UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))};
  if (!file.fd.valid()) return file_error(errno, "opened", path);
  struct stat info {};
  if (::fstat(file.fd.get(), &info) != 0) return file_error(errno, "read", path);
  if (!S_ISREG(info.st_mode)) return Status(StatusCode::unavailable, fmt::format("{} is not a file", path));
  file.bytes = static_cast<std::uint64_t>(info.st_size);
  return file;
}

Status size_differs(const std::string& path, std::uint64_t is, std::uint64_t expected) {
  return Status(StatusCode::protocol_error,
                fmt::format("{} has {} bytes instead of {}: it was cut off or changed", path, is, expected));
}

// Fills `buffer` from the current position of the file; an error if the file is too short.
Status read_all(int fd, std::span<std::byte> buffer, const std::string& path) {
  const std::size_t wanted = buffer.size();
  while (!buffer.empty()) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error(errno, "read", path);
    if (got == 0) return size_differs(path, wanted - buffer.size(), wanted);
    buffer = buffer.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

// Reads the whole file in blocks, each to the memory that `place` returns, and compares size and hash.
Status read_and_check(const OpenFile& file, const std::string& path, const FileRecord& record,
                      const std::function<std::byte*(std::uint64_t offset)>& place) {
  if (file.bytes != record.bytes) return size_differs(path, file.bytes, record.bytes);
  Hasher hasher;
  for (std::uint64_t offset = 0; offset < record.bytes; offset += kBlockBytes) {
    const std::span block(place(offset), std::min<std::uint64_t>(kBlockBytes, record.bytes - offset));
    LOCKSTEP_RETURN_IF_ERROR(read_all(file.fd.get(), block, path));
    hasher.add(block);
  }
  if (hasher.hex() == record.xxh3) return {};
  return Status(StatusCode::protocol_error, fmt::format("{} does not have the hash that it was written with: its "
                                                        "content was damaged or changed",
                                                        path));
}

}  // namespace

Status file_error(int error_number, std::string_view done, const std::string& path) {
  const auto error = [&](StatusCode code, std::string_view why) {
    return Status(code, fmt::format("{} cannot be {}: {}", path, done, why));
  };
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return error(
          StatusCode::resource_exhausted,
          fmt::format("the disk or the quota is full{}; free some space, or choose another folder", free_space(path)));
    case EFBIG:
      return error(StatusCode::resource_exhausted,
                   "it would be larger than the system allows a file to be; see ulimit -f");
    case EACCES:
    case EPERM:
      return error(StatusCode::unavailable, fmt::format("user {} has no permission; change the permissions, or "
                                                        "choose another folder",
                                                        ::geteuid()));
    case EROFS: return error(StatusCode::unavailable, "the file system is read-only; choose another folder");
    case ENOTDIR:
      return error(StatusCode::unavailable, "a part of this path is a file, not a folder; choose another path");
    case ENOENT: return error(StatusCode::not_found, "it does not exist");
    case EIO: return error(StatusCode::unavailable, "the disk reported an error; its health should be checked");
    default: return error(StatusCode::unavailable, errno_text(error_number));
  }
}

std::uint64_t total_bytes(const Pieces& pieces) {
  std::uint64_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  return bytes;
}

Result<FileRecord> write_file(const std::string& folder, const std::string& name, const Pieces& pieces) {
  const std::string path = join(folder, name);
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.valid()) return file_error(errno, "created", path);
  Hasher hasher;
  for (std::span<const std::byte> piece : pieces) {
    while (!piece.empty()) {
      const auto block = piece.first(std::min(piece.size(), kBlockBytes));
      hasher.add(block);
      LOCKSTEP_RETURN_IF_ERROR(write_all(fd.get(), block, path));
      piece = piece.subspan(block.size());
    }
  }
  if (::fsync(fd.get()) != 0) return file_error(errno, "flushed to the disk", path);
  return FileRecord{name, total_bytes(pieces), hasher.hex()};
}

Status sync_folder(const std::string& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return file_error(errno, "opened", folder);
  // EINVAL: a file system that cannot sync folders, and so gives no such guarantee.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) return file_error(errno, "flushed to the disk", folder);
  return {};
}

Result<FileBytes> read_file(const std::string& path) {
  const auto file = open_to_read(path);
  if (!file.ok()) return file.status();
  FileBytes bytes{std::make_unique_for_overwrite<std::byte[]>(file->bytes), file->bytes};
  LOCKSTEP_RETURN_IF_ERROR(read_all(file->fd.get(), {bytes.data.get(), bytes.size}, path));
  return bytes;
}

Result<FileBytes> read_checked_file(const std::string& folder, const FileRecord& record) {
  const std::string path = join(folder, record.name);
  const auto file = open_to_read(path);
  if (!file.ok()) return file.status();
  FileBytes bytes{std::make_unique_for_overwrite<std::byte[]>(file->bytes), file->bytes};
  LOCKSTEP_RETURN_IF_ERROR(
      read_and_check(*file, path, record, [&](std::uint64_t offset) { return bytes.data.get() + offset; }));
  return bytes;
}

Status check_file(const std::string& folder, const FileRecord& record) {
  const std::string path = join(folder, record.name);
  const auto file = open_to_read(path);
  if (!file.ok()) return file.status();
  [[maybe_unused]] const int advised = ::posix_fadvise(file->fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  const auto block = std::make_unique_for_overwrite<std::byte[]>(kBlockBytes);
  return read_and_check(*file, path, record, [&](std::uint64_t) { return block.get(); });
}

Status check_size(const std::string& folder, const FileRecord& record) {
  const std::string path = join(folder, record.name);
  const auto file = open_to_read(path);
  if (!file.ok()) return file.status();
  return file->bytes == record.bytes ? Status() : size_differs(path, file->bytes, record.bytes);
}

}  // namespace lockstep::checkpoint
