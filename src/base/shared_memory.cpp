#include "base/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/net/socket.h"

namespace lockstep {
namespace {

std::size_t round_to_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

Result<std::byte*> map_fd(int fd, std::size_t bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    return Status(StatusCode::resource_exhausted,
                  fmt::format("cannot map {} bytes of shared memory: {}", bytes, errno_text(errno)));
  }
  return static_cast<std::byte*>(address);
}

}  // namespace

Result<std::unique_ptr<SharedMemory>> SharedMemory::create(std::size_t bytes, const char* name) {
  const std::size_t size = round_to_pages(bytes == 0 ? 1 : bytes);
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return Status(StatusCode::resource_exhausted,
                  fmt::format("cannot create shared memory (memfd_create): {}", errno_text(errno)));
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    return Status(StatusCode::resource_exhausted,
                  fmt::format("cannot allocate shared memory of {} bytes: {}", size, errno_text(errno)));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return Status(StatusCode::internal, fmt::format("cannot seal shared memory: {}", errno_text(errno)));
  }
  auto address = map_fd(fd.get(), size);
  if (!address.ok()) return address.status();
  return std::unique_ptr<SharedMemory>(new SharedMemory(std::move(fd), *address, size));
}

Result<std::unique_ptr<SharedMemory>> SharedMemory::map(UniqueFd fd, std::size_t bytes) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Status(StatusCode::protocol_error, "a peer passed shared memory that is not sealed against shrinking");
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || info.st_size < 0 || static_cast<std::size_t>(info.st_size) < bytes) {
    return Status(StatusCode::protocol_error,
                  fmt::format("a peer passed shared memory of {} bytes, but announced {}", info.st_size, bytes));
  }
  const std::size_t size = round_to_pages(bytes == 0 ? 1 : bytes);
  auto address = map_fd(fd.get(), size);
  if (!address.ok()) return address.status();
  return std::unique_ptr<SharedMemory>(new SharedMemory(std::move(fd), *address, size));
}

SharedMemory::~SharedMemory() { ::munmap(data_, size_); }

}  // namespace lockstep
