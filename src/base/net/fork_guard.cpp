#include "base/net/fork_guard.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

namespace lockstep {
namespace {

// Each socket has an inode number of its own: whether a descriptor is still the same socket. 0: none.
std::array<std::atomic<ino_t>, std::size_t{1} << 16> sockets;
std::atomic<std::size_t> used{0};  // all in use are below

ino_t socket_number(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

// Only what is allowed between fork and exec. The descriptors stay in use, because the child has copies of their
// owners, which may close them.
void replace_all() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const std::size_t end = used.load();
  for (std::size_t i = 0; i < end; ++i) {
    const ino_t number = sockets[i].exchange(0);
    const int fd = static_cast<int>(i);
    if (number == 0 || socket_number(fd) != number) continue;
    if (null < 0 || ::dup3(null, fd, O_CLOEXEC) < 0) ::close(fd);
  }
  if (null >= 0) ::close(null);
}

}  // namespace

void close_in_forked_children(int socket) {
  static const int installed = ::pthread_atfork(nullptr, nullptr, replace_all);
  if (installed != 0 || socket < 0 || static_cast<std::size_t>(socket) >= sockets.size()) return;
  const auto index = static_cast<std::size_t>(socket);
  sockets[index].store(socket_number(socket));
  for (std::size_t end = used.load(); end <= index && !used.compare_exchange_weak(end, index + 1);) {
  }
}

}  // namespace lockstep
