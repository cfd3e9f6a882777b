#include "base/net/fd_passing.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace lockstep {
namespace {

constexpr std::size_t kMaxPassedFds = 16;

}  // namespace

IoResult send_some(int socket, std::span<const std::byte> bytes, int passed_fd) {
  iovec vector{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (passed_fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &passed_fd, sizeof(int));
  }
  const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return io_result_of_errno(errno);
  return IoResult{.bytes = static_cast<std::size_t>(sent)};
}

IoResult receive_some(int socket, std::span<std::byte> bytes, std::vector<UniqueFd>& fds) {
  iovec vector{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPassedFds)] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t received = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received < 0) return io_result_of_errno(errno);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  IoResult result{.bytes = static_cast<std::size_t>(received)};
  // Some descriptors did not arrive, so those that did cannot be assigned to their messages.
  if ((message.msg_flags & MSG_CTRUNC) != 0) result.error = EMFILE;
  result.closed = received == 0 && !bytes.empty();
  return result;
}

}  // namespace lockstep
