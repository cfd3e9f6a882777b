#include "support/hosts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <thread>

namespace lockstep::testing {
namespace {

std::string fd_path(int fd) { return fmt::format("/proc/{}/fd/{}", ::getpid(), fd); }

// A network namespace belongs to a thread: a new thread makes it, so that the caller stays in its own.
Result<UniqueFd> make_namespace() {
  int fd = -1;
  int error = 0;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) {
      error = errno;
      return;
    }
    fd = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (fd < 0) error = errno;
  }).join();
  if (fd < 0) {
    return Status(StatusCode::unavailable, fmt::format("a network namespace needs CAP_SYS_ADMIN (root): {}",
                                                       std::generic_category().message(error)));
  }
  return UniqueFd(fd);
}

// Runs a shell script inside a namespace; the error contains its output.
Status run_inside(int namespace_fd, const std::string& script) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Status(StatusCode::internal, "pipe2 failed");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const std::string net = "--net=" + fd_path(namespace_fd);
  const std::array<const char*, 6> argv = {"nsenter", net.c_str(), "sh", "-ec", script.c_str(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDERR_FILENO);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, "nsenter", &actions, nullptr, const_cast<char* const*>(argv.data()), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return Status(StatusCode::unavailable,
                  fmt::format("nsenter cannot be started: {}", std::generic_category().message(error)));
  }
  write_end.reset();
  std::string text;
  std::array<char, 4096> block{};
  for (ssize_t got = 0; (got = ::read(read_end.get(), block.data(), block.size())) > 0;) {
    text.append(block.data(), static_cast<std::size_t>(got));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return Status(StatusCode::internal, fmt::format("a script in a network namespace failed: {}\n{}", text, script));
}

bool have_command(const char* name) {
  constexpr std::array<const char*, 4> kFolders = {"/usr/sbin", "/usr/bin", "/sbin", "/bin"};
  for (const char* folder : kFolders) {
    if (::access(fmt::format("{}/{}", folder, name).c_str(), X_OK) == 0) return true;
  }
  return false;
}

Status check_commands(const HostOptions& options) {
  for (const char* command : {"ip", "nsenter"}) {
    if (!have_command(command)) {
      return Status(StatusCode::unavailable, fmt::format("the command {} is missing (tools/setup --test)", command));
    }
  }
  if (!options.rate.empty() && !have_command("tc")) {
    return Status(StatusCode::unavailable, "the command tc is missing (tools/setup --test)");
  }
  return {};
}

std::string shape(const std::string& device, const std::string& rate) {
  if (rate.empty()) return "";
  return fmt::format("tc qdisc add dev {} root tbf rate {} burst 256k latency 50ms\n", device, rate);
}

// Finds `ip` even if the user's PATH lacks sbin.
constexpr const char* kPath = "PATH=/usr/sbin:/usr/bin:/sbin:/bin\n";

// The bridge, and on a link that is removed again what every host is about to get: without the privilege or the kernel
// feature the test cannot run, while a later failure is a defect.
Status make_bridge(int namespace_fd, const HostOptions& options) {
  struct Attempt {
    std::string script;
    const char* needs;
  };
  std::vector<Attempt> attempts = {
      {"ip link add br0 type bridge\n"
       "ip link set br0 up\n"
       "ip link add probe type veth peer name probe2\n",
       "a network between namespaces needs CAP_NET_ADMIN (root) and the kernel modules bridge and veth"},
      {"ip -6 addr add fd77::ff/64 dev probe nodad\n", "the hosts' IPv6 addresses need a kernel with IPv6 enabled"}};
  if (!options.rate.empty()) {
    attempts.push_back(
        {shape("probe", options.rate), "a link's rate needs CAP_NET_ADMIN and the kernel module sch_tbf"});
  }
  for (const auto& [script, needs] : attempts) {
    const Status status = run_inside(namespace_fd, kPath + script);
    if (!status.ok()) return Status(StatusCode::unavailable, fmt::format("{}: {}", needs, status.message()));
  }
  return run_inside(namespace_fd, fmt::format("{}ip link del probe\n", kPath));
}

}  // namespace

std::string HostSet::address(int host) { return fmt::format("10.77.0.{}", host + 1); }

std::string HostSet::ipv6_address(int host) { return fmt::format("fd77::{}", host + 1); }

Result<HostSet> HostSet::create(int hosts, const HostOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(check_commands(options));
  HostSet set;
  auto bridge = make_namespace();
  if (!bridge.ok()) return bridge.status();
  set.switch_ = std::move(*bridge);
  LOCKSTEP_RETURN_IF_ERROR(make_bridge(set.switch_.get(), options));
  for (int host = 0; host < hosts; ++host) {
    auto created = make_namespace();
    if (!created.ok()) return created.status();
    set.hosts_.push_back(std::move(*created));
    const int fd = set.hosts_.back().get();
    const std::string port = fmt::format("host{}", host);
    LOCKSTEP_RETURN_IF_ERROR(
        run_inside(set.switch_.get(), fmt::format("{}ip link add {} type veth peer name eth0 netns {}\n"
                                                  "ip link set {} master br0 up\n{}",
                                                  kPath, port, fd_path(fd), port, shape(port, options.rate))));
    LOCKSTEP_RETURN_IF_ERROR(
        run_inside(fd, fmt::format("{}ip link set lo up\n"
                                   "ip addr add {}/24 dev eth0\n"
                                   "ip -6 addr add {}/64 dev eth0 nodad\n"
                                   "ip link set eth0 up\n{}",
                                   kPath, address(host), ipv6_address(host), shape("eth0", options.rate))));
  }
  return set;
}

Status HostSet::set_link(int host, const char* state) {
  return run_inside(switch_.get(), fmt::format("{}ip link set host{} {}\n", kPath, host, state));
}

Status HostSet::set_firewall(int host, Firewall firewall, int percent) {
  const std::string lose = fmt::format("meta l4proto tcp numgen random mod 100 '<' {} drop", percent);
  std::string script = fmt::format("{}nft add table inet lockstep\nnft delete table inet lockstep\n", kPath);
  if (firewall != Firewall::open) {
    script += fmt::format(
        "nft add table inet lockstep\n"
        "nft add chain inet lockstep input '{{ type filter hook input priority 0; }}'\n"
        "nft add rule inet lockstep input iifname != lo {}\n",
        firewall == Firewall::drop   ? "meta l4proto tcp drop"
        : firewall == Firewall::lose ? lose
                                     : "'tcp flags & rst == 0' reject with tcp reset");
  }
  const Status set = run_inside(namespace_fd(host), script);
  return set.ok() ? set : Status(StatusCode::unavailable, "no firewall: " + set.message());
}

Listener listen_inside(int namespace_fd, const std::string& address) {
  Listener listener;
  const char* failed = nullptr;
  int error = 0;
  std::thread([&] {
    const auto check = [&](bool fine, const char* what) {
      if (fine || failed != nullptr) return;
      failed = what;
      error = errno;
    };
    if (namespace_fd >= 0) check(::setns(namespace_fd, CLONE_NEWNET) == 0, "setns");
    sockaddr_in bound{};
    bound.sin_family = AF_INET;
    ::inet_pton(AF_INET, address.c_str(), &bound.sin_addr);
    socklen_t length = sizeof(bound);
    auto* name = reinterpret_cast<sockaddr*>(&bound);
    listener.fd.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    check(listener.fd.valid(), "socket");
    check(::bind(listener.fd.get(), name, length) == 0, "bind");
    check(::listen(listener.fd.get(), SOMAXCONN) == 0, "listen");
    check(::getsockname(listener.fd.get(), name, &length) == 0, "getsockname");
    listener.port = ntohs(bound.sin_port);
  }).join();
  if (failed != nullptr) {
    throw std::system_error(error, std::generic_category(), fmt::format("{} for a listener at {}", failed, address));
  }
  return listener;
}

}  // namespace lockstep::testing
