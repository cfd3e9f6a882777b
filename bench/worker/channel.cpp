#include "bench/worker/channel.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <type_traits>

namespace lockstep::bench {
namespace {

constexpr std::uint32_t kMaxMessage = 64u << 20;

template <typename T>
std::vector<char> bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<char> body(sizeof(T));
  std::memcpy(body.data(), &value, sizeof(T));
  return body;
}

template <typename T>
T value_of(const std::vector<char>& body) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (body.size() != sizeof(T)) throw BenchError("a benchmark process sent a message of the wrong length");
  T value;
  std::memcpy(&value, body.data(), sizeof(T));
  return value;
}

template <typename T>
void append(std::vector<char>& body, const T* data, std::size_t count) {
  const std::uint64_t length = count;
  const auto* header = reinterpret_cast<const char*>(&length);
  const auto* content = reinterpret_cast<const char*>(data);
  body.insert(body.end(), header, header + sizeof length);
  body.insert(body.end(), content, content + count * sizeof(T));
}

template <typename Container>
void take(const std::vector<char>& body, std::size_t& at, Container& out) {
  using T = typename Container::value_type;
  std::uint64_t length = 0;
  if (body.size() - at < sizeof length) throw BenchError("a benchmark process sent a short reply");
  std::memcpy(&length, body.data() + at, sizeof length);
  at += sizeof length;
  if (length > (body.size() - at) / sizeof(T)) throw BenchError("a benchmark process sent a short reply");
  out.resize(length);
  if (length > 0) std::memcpy(out.data(), body.data() + at, length * sizeof(T));
  at += length * sizeof(T);
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw BenchError("the path " + path + " is too long for a Unix socket; set TMPDIR to a shorter folder");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

UniqueFd unix_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) throw BenchError(std::string("cannot create a Unix socket: ") + std::strerror(errno));
  return fd;
}

}  // namespace

Channel Channel::connect(const std::string& path) {
  UniqueFd fd = unix_socket();
  const sockaddr_un address = address_of(path);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw BenchError("cannot connect to the benchmark's driver at " + path + ": " + std::strerror(errno));
  return Channel(std::move(fd));
}

void Channel::write_message(const std::vector<char>& body) {
  const auto length = static_cast<std::uint32_t>(body.size());
  std::vector<char> message = bytes_of(length);
  message.insert(message.end(), body.begin(), body.end());
  for (std::size_t at = 0; at < message.size();) {
    const ssize_t n = ::send(fd_.get(), message.data() + at, message.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw BenchError(std::string("the other end of the benchmark has closed the connection: ") +
                       std::strerror(errno));
    at += static_cast<std::size_t>(n);
  }
}

std::vector<char> Channel::read_message() {
  const auto read_exactly = [this](char* out, std::size_t size) {
    for (std::size_t at = 0; at < size;) {
      const ssize_t n = ::recv(fd_.get(), out + at, size - at, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw BenchError(std::string("cannot read from a benchmark process: ") + std::strerror(errno));
      if (n == 0) throw BenchError("the other end of the benchmark has closed the connection");
      at += static_cast<std::size_t>(n);
    }
  };
  std::uint32_t length = 0;
  read_exactly(reinterpret_cast<char*>(&length), sizeof length);
  if (length > kMaxMessage) throw BenchError("a benchmark process sent a message that is too long");
  std::vector<char> body(length);
  read_exactly(body.data(), body.size());
  return body;
}

void Channel::send(const Hello& hello) { write_message(bytes_of(hello)); }
void Channel::send(const Command& command) { write_message(bytes_of(command)); }
void Channel::send(const Reply& reply) {
  std::vector<char> body;
  append(body, reply.error.data(), reply.error.size());
  append(body, &reply.wrong, 1);
  append(body, &reply.cpu_seconds, 1);
  append(body, reply.seconds.data(), reply.seconds.size());
  append(body, reply.digests.data(), reply.digests.size());
  write_message(body);
}

Hello Channel::receive_hello() { return value_of<Hello>(read_message()); }
Command Channel::receive_command() { return value_of<Command>(read_message()); }
Reply Channel::receive_reply() {
  const std::vector<char> body = read_message();
  std::size_t at = 0;
  Reply reply;
  std::vector<std::uint64_t> wrong;
  std::vector<double> cpu;
  take(body, at, reply.error);
  take(body, at, wrong);
  take(body, at, cpu);
  take(body, at, reply.seconds);
  take(body, at, reply.digests);
  if (wrong.size() != 1 || cpu.size() != 1) throw BenchError("a benchmark process sent a malformed reply");
  reply.wrong = wrong[0];
  reply.cpu_seconds = cpu[0];
  return reply;
}

UniqueFd listen_at(const std::string& path) {
  UniqueFd fd = unix_socket();
  const sockaddr_un address = address_of(path);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd.get(), 128) != 0)
    throw BenchError("cannot listen on " + path + ": " + std::strerror(errno));
  return fd;
}

}  // namespace lockstep::bench
