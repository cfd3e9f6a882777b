// The limit between hosts: one process per host measures the raw sockets of the link, full duplex,
// around a ring of the hosts. The reply to a run has two times:
//   seconds[0]  the one-way time of 8 bytes: half of a round trip between hosts 0 and 1
//   seconds[1]  the time to send command.bytes to the next host while receiving as many from the previous one
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/unique_fd.h"
#include "bench/worker/channel.h"
#include "bench/worker/start_line.h"
#include "bench/worker/worker.h"

namespace lockstep::bench {
namespace {

constexpr std::uint16_t kPort = 29600;  // free in our own network namespace
constexpr int kRoundTrips = 50;

[[noreturn]] void fail(const std::string& what) { throw BenchError(what + ": " + std::strerror(errno)); }

sockaddr_in address_of(const std::string& host) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) throw BenchError(host + " is not an IPv4 address");
  return address;
}

UniqueFd tcp_socket() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) fail("cannot create a TCP socket");
  return fd;
}

void set_no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void send_bytes(int fd, const std::vector<char>& block, std::uint64_t bytes) {
  while (bytes > 0) {
    const ssize_t n = ::send(fd, block.data(), std::min<std::uint64_t>(bytes, block.size()), MSG_NOSIGNAL);
    if (n <= 0) fail("cannot send on the link");
    bytes -= static_cast<std::uint64_t>(n);
  }
}

// `spin`: poll instead of sleeping, because the time to wake up is not a property of the link.
void receive_bytes(int fd, std::vector<char>& block, std::uint64_t bytes, bool spin) {
  while (bytes > 0) {
    const auto room = std::min<std::uint64_t>(bytes, block.size());
    const ssize_t n = ::recv(fd, block.data(), room, spin ? MSG_DONTWAIT : 0);
    if (n < 0 && spin && errno == EAGAIN) continue;
    if (n <= 0) fail("cannot receive on the link");
    bytes -= static_cast<std::uint64_t>(n);
  }
}

class Link {
 public:
  explicit Link(const WorkerConfig& config)
      : host_(config.rank),
        own_core_(!config.cores.empty()),
        shared_(config.shared, kSharedPageBytes),
        line_(shared_.page(), config.size, own_core_) {
    UniqueFd listener = tcp_socket();
    const sockaddr_in mine = address_of(config.hosts.at(static_cast<std::size_t>(host_)));
    if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&mine), sizeof mine) != 0 ||
        ::listen(listener.get(), 4) != 0)
      fail("cannot listen on the link");
    line_.arrive();  // now all hosts listen
    const std::size_t next = static_cast<std::size_t>(host_ + 1) % config.hosts.size();
    const sockaddr_in theirs = address_of(config.hosts.at(next));
    to_next_ = tcp_socket();
    if (::connect(to_next_.get(), reinterpret_cast<const sockaddr*>(&theirs), sizeof theirs) != 0)
      fail("cannot connect to " + config.hosts.at(next));
    from_previous_ = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!from_previous_.valid()) fail("cannot accept on the link");
    set_no_delay(to_next_.get());
    set_no_delay(from_previous_.get());
  }

  Reply measure(std::uint64_t bytes) {
    Reply reply;
    reply.seconds = {latency(), exchange(bytes)};
    return reply;
  }

 private:
  double latency() {
    line_.arrive();
    if (host_ > 1) return 0;
    std::vector<char> message(8);
    std::array<double, kRoundTrips> times{};
    for (double& time : times) {
      const std::int64_t start = now_ns();
      if (host_ == 0) {
        send_bytes(to_next_.get(), message, message.size());
        receive_bytes(to_next_.get(), message, message.size(), own_core_);
      } else {
        receive_bytes(from_previous_.get(), message, message.size(), own_core_);
        send_bytes(from_previous_.get(), message, message.size());
      }
      time = static_cast<double>(now_ns() - start) * 1e-9;
    }
    std::nth_element(times.begin(), times.begin() + kRoundTrips / 2, times.end());
    return host_ == 0 ? times[kRoundTrips / 2] / 2 : 0;
  }

  double exchange(std::uint64_t bytes) {
    const std::int64_t start = line_.arrive();
    std::exception_ptr failure;
    std::thread sender([&] {
      try {
        send_bytes(to_next_.get(), out_, bytes);
      } catch (...) {
        failure = std::current_exception();
      }
    });
    try {
      receive_bytes(from_previous_.get(), in_, bytes, false);
    } catch (...) {
      sender.join();
      throw;
    }
    const double time = static_cast<double>(now_ns() - start) * 1e-9;
    sender.join();
    if (failure) std::rethrow_exception(failure);
    return time;
  }

  int host_;
  bool own_core_;
  SharedMapping shared_;
  StartLine line_;
  UniqueFd to_next_;
  UniqueFd from_previous_;
  std::vector<char> out_ = std::vector<char>(std::size_t{1} << 20);
  std::vector<char> in_ = std::vector<char>(std::size_t{1} << 20);
};

int serve(const WorkerConfig& config) {
  Channel channel = Channel::connect(config.socket);
  channel.send(Hello{config.rank, static_cast<std::int32_t>(::getpid())});
  Link link(config);
  channel.send(Reply{});  // ready
  for (;;) {
    const Command command = channel.receive_command();
    if (command.kind == CommandKind::quit) return 0;
    channel.send(link.measure(command.bytes));
  }
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  try {
    return lockstep::bench::serve(lockstep::bench::configure_worker(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
