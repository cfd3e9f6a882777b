#include "strangers/crowd.h"

#include <dirent.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/net/auth.h"
#include "base/net/handshake.h"
#include "base/random.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;

// The inodes of the sockets of a process.
std::set<std::string> socket_inodes(pid_t pid) {
  std::set<std::string> inodes;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ignored)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

}  // namespace

std::set<std::uint16_t> listening_ports(pid_t pid) {
  const auto inodes = socket_inodes(pid);
  std::ifstream table("/proc/" + std::to_string(pid) + "/net/tcp");
  std::set<std::uint16_t> ports;
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string field;
    std::vector<std::string> all;
    while (fields >> field) all.push_back(field);
    // Columns: slot, local address:port, remote, state (0A: listening), ..., inode.
    if (all.size() < 10 || all[3] != "0A" || !inodes.contains(all[9])) continue;
    ports.insert(static_cast<std::uint16_t>(std::strtoul(all[1].substr(all[1].find(':') + 1).c_str(), nullptr, 16)));
  }
  return ports;
}

std::size_t open_descriptors(pid_t pid) {
  std::error_code ignored;
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ignored)) {
    (void)entry;
    ++count;
  }
  return count;
}

Crowd::Crowd(Options options) : options_(options) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;  // ours, not that of the job
  ::setrlimit(RLIMIT_NOFILE, &limit);
  thread_ = std::thread([this] { run(); });
}

void Crowd::attack(const std::set<std::uint16_t>& ports) {
  const std::lock_guard lock(mutex_);
  ports_.assign(ports.begin(), ports.end());
}

std::size_t Crowd::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
  strangers_.clear();
  return made_;
}

void Crowd::run() {
  const auto begin = std::chrono::steady_clock::now();
  double allowed = 0;
  auto last = begin;
  while (!stopping_) {
    const auto now = std::chrono::steady_clock::now();
    allowed += options_.per_second * std::chrono::duration<double>(now - last).count();
    allowed = std::min(allowed, 100.0);
    last = now;
    std::vector<std::uint16_t> ports;
    {
      const std::lock_guard lock(mutex_);
      ports = ports_;
    }
    for (; allowed >= 1 && !ports.empty() && !finished(); --allowed) connect(ports[made_ % ports.size()]);
    continue_slow_ones();
    std::this_thread::sleep_for(5ms);
  }
}

void Crowd::connect(std::uint16_t port) {
  Stranger stranger{.fd = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
                    .kind = static_cast<Kind>(made_ / 7 % 3)};
  if (!stranger.fd.valid()) return;
  const linger reset{.l_onoff = 1, .l_linger = 0};  // leaves no connection in TIME_WAIT
  ::setsockopt(stranger.fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  [[maybe_unused]] const int begun =
      ::connect(stranger.fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  if (stranger.kind == Kind::garbage) {
    Bytes garbage(256);
    fill_random(garbage);
    if (made_ % 2 == 0) garbage.front() = std::byte{0x16};  // as TLS begins
    if (made_ % 4 == 1) garbage = handshake::format_hello({.identity = {.role = "\x1b[31mdata\r\n"}});
    [[maybe_unused]] const auto sent = ::send(stranger.fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  }
  strangers_.push_back(std::move(stranger));
  if (strangers_.size() > options_.at_once) strangers_.erase(strangers_.begin());
  ++made_;
}

// A handshake of which a byte arrives now and then.
void Crowd::continue_slow_ones() {
  static const Bytes hello = handshake::format_hello({.identity = {.role = "data"}});
  for (Stranger& stranger : strangers_) {
    if (stranger.kind != Kind::slow || stranger.sent >= hello.size() || std::rand() % 20 != 0) continue;
    if (::send(stranger.fd.get(), &hello[stranger.sent], 1, MSG_NOSIGNAL) == 1) ++stranger.sent;
  }
}

}  // namespace lockstep::testing
