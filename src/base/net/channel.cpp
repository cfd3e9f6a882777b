#include "base/net/channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <utility>

#include "base/net/socket.h"

namespace lockstep {
namespace {

std::size_t bytes_in(std::span<const iovec> ranges) {
  std::size_t bytes = 0;
  for (const iovec& range : ranges) bytes += range.iov_len;
  return bytes;
}

// `ranges` without their first `bytes`; `first` holds the rest of the range that is split.
std::span<const iovec> without(std::span<const iovec> ranges, std::size_t bytes, iovec& first) {
  while (!ranges.empty() && bytes >= ranges.front().iov_len) {
    bytes -= ranges.front().iov_len;
    ranges = ranges.subspan(1);
  }
  if (!ranges.empty()) first = {static_cast<char*>(ranges.front().iov_base) + bytes, ranges.front().iov_len - bytes};
  return ranges;
}

IoResult partial(std::size_t bytes, IoResult otherwise) {
  // What ended the call is reported by the next one.
  return bytes > 0 ? IoResult{.bytes = bytes} : otherwise;
}

constexpr IoResult kDamaged{.error = EBADMSG};

}  // namespace

struct Channel::Tls {
  explicit Tls(std::unique_ptr<TlsStream> established) : stream(std::move(established)) {}

  IoResult send(int fd, std::span<const iovec> ranges);
  IoResult receive(int fd, std::span<std::byte> bytes, bool& drained);
  // Sends the output; not would_block: all of it was sent.
  IoResult flush(int fd);
  // The stream is damaged: makes the socket readable, so that poll(2) reports it, and tells the peer, as far as that is
  // possible without waiting.
  void report_damage(int fd);

  std::mutex mutex;
  const std::unique_ptr<TlsStream> stream;
  // How many bytes at the start of the next send() are encrypted already.
  std::size_t ahead = 0;
  bool damage_reported = false;
};

IoResult Channel::Tls::flush(int fd) {
  while (!stream->output().empty()) {
    const auto output = stream->output();
    const ssize_t sent = ::send(fd, output.data(), output.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return io_result_of_errno(errno);
    stream->consume_output(static_cast<std::size_t>(sent));
  }
  return {};
}

void Channel::Tls::report_damage(int fd) {
  if (std::exchange(damage_reported, true)) return;
  [[maybe_unused]] const IoResult alert = flush(fd);
  // What was received before the damage is returned first, and no byte that is still to come would wake this side.
  ::shutdown(fd, SHUT_RD);
}

IoResult Channel::Tls::send(int fd, std::span<const iovec> ranges) {
  const std::size_t offered = bytes_in(ranges);
  std::size_t total = 0;
  while (true) {
    if (const IoResult flushed = flush(fd); flushed.would_block || flushed.error != 0) return partial(total, flushed);
    const std::size_t done = std::min(ahead, offered - total);
    ahead -= done;
    total += done;
    if (total == offered) return {.bytes = total};
    // Split ranges are copied: a batch has few.
    iovec first{};
    const auto rest = without(ranges, total, first);
    std::array<iovec, 16> batch;
    const std::size_t count = std::min(rest.size(), batch.size());
    std::copy_n(rest.begin(), count, batch.begin());
    batch[0] = first;
    ahead = stream->encrypt(std::span(batch).first(count));
    if (ahead == 0) return partial(total, kDamaged);
  }
}

IoResult Channel::Tls::receive(int fd, std::span<std::byte> bytes, bool& drained) {
  std::size_t total = 0;
  while (total < bytes.size()) {
    if (const std::size_t got = stream->decrypt(bytes.subspan(total)); got > 0) {
      total += got;
      continue;
    }
    if (stream->failed()) {
      report_damage(fd);
      return partial(total, kDamaged);
    }
    if (drained) return partial(total, {.would_block = true});
    const auto space = stream->input_space();
    const ssize_t got = ::recv(fd, space.data(), space.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return partial(total, io_result_of_errno(errno));
    if (got == 0) return partial(total, {.closed = true});
    stream->add_input(static_cast<std::size_t>(got));
    // A short read: poll(2) reports when there is more.
    drained = static_cast<std::size_t>(got) < space.size();
  }
  return {.bytes = total};
}

Channel::Channel() = default;
Channel::Channel(UniqueFd fd) : fd_(std::move(fd)) {}
Channel::Channel(UniqueFd fd, std::unique_ptr<TlsStream> tls)
    : fd_(std::move(fd)), tls_(std::make_unique<Tls>(std::move(tls))) {}
Channel::Channel(Channel&&) noexcept = default;
Channel& Channel::operator=(Channel&&) noexcept = default;
Channel::~Channel() = default;

void Channel::reset() {
  fd_.reset();
  tls_.reset();
}

IoResult Channel::send(std::span<const iovec> ranges) {
  if (tls_) {
    const std::lock_guard lock(tls_->mutex);
    return tls_->send(fd_.get(), ranges);
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(ranges.data());  // sendmsg only reads them
  message.msg_iovlen = ranges.size();
  while (true) {
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return {.bytes = static_cast<std::size_t>(sent)};
    if (errno != EINTR) return io_result_of_errno(errno);
  }
}

IoResult Channel::send(std::span<const std::byte> bytes) {
  if (tls_) {
    const iovec range{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return send(std::span(&range, 1));
  }
  while (true) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) return {.bytes = static_cast<std::size_t>(sent)};
    if (errno != EINTR) return io_result_of_errno(errno);
  }
}

IoResult Channel::receive(std::span<const iovec> ranges) {
  if (tls_) {
    const std::lock_guard lock(tls_->mutex);
    std::size_t total = 0;
    bool drained = false;
    for (const iovec& range : ranges) {
      if (range.iov_len == 0) continue;
      const IoResult got = tls_->receive(fd_.get(), {static_cast<std::byte*>(range.iov_base), range.iov_len}, drained);
      total += got.bytes;
      if (got.bytes < range.iov_len) return partial(total, got);
    }
    return {.bytes = total};
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(ranges.data());  // recvmsg does not change them
  message.msg_iovlen = ranges.size();
  while (true) {
    const ssize_t got = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    if (got >= 0) return {.bytes = static_cast<std::size_t>(got), .closed = got == 0};
    if (errno != EINTR) return io_result_of_errno(errno);
  }
}

IoResult Channel::receive(std::span<std::byte> bytes) {
  if (tls_) {
    const std::lock_guard lock(tls_->mutex);
    bool drained = false;
    return tls_->receive(fd_.get(), bytes, drained);
  }
  while (true) {
    const ssize_t got = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (got >= 0) return {.bytes = static_cast<std::size_t>(got), .closed = got == 0};
    if (errno != EINTR) return io_result_of_errno(errno);
  }
}

bool Channel::has_buffered() const {
  if (!tls_) return false;
  const std::lock_guard lock(tls_->mutex);
  return tls_->stream->has_buffered();
}

std::string channel_error_text(int error) {
  if (error != EBADMSG) return errno_text(error);
  return "the encrypted stream was damaged: bytes were changed, lost or repeated between the two hosts";
}

namespace {

Status lost(const Channel& channel, const IoResult& result) {
  if (result.error == 0) {
    return Status(StatusCode::peer_lost, fmt::format("{} closed the connection", peer_text(channel.fd())));
  }
  return Status(StatusCode::peer_lost, fmt::format("the connection to {} broke: {}", peer_text(channel.fd()),
                                                   channel_error_text(result.error)));
}

}  // namespace

Status send_all(Channel& channel, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const IoResult result = channel.send(bytes);
    if (result.would_block) {
      const Status ready = wait_ready(channel.fd(), POLLOUT, deadline);
      if (!ready.ok()) return ready.with_context("sending to " + peer_text(channel.fd()));
    } else if (result.error != 0) {
      return lost(channel, result);
    } else {
      bytes = bytes.subspan(result.bytes);
    }
  }
  return {};
}

Status receive_all(Channel& channel, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const IoResult result = channel.receive(bytes);
    if (result.would_block) {
      const Status ready = wait_ready(channel.fd(), POLLIN, deadline);
      if (!ready.ok()) return ready.with_context("waiting for " + peer_text(channel.fd()));
    } else if (result.closed || result.error != 0) {
      return lost(channel, result);
    } else {
      bytes = bytes.subspan(result.bytes);
    }
  }
  return {};
}

}  // namespace lockstep
