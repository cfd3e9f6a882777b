// Several hosts on one machine: network namespaces, each with one interface on a common bridge.
//
// The namespaces have no names: only file descriptors of this process refer to them, so the kernel
// removes them, their interfaces and the bridge however the test ends. Addresses (10.77.0.x and
// fd77::x) exist inside the namespaces only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "lockstep/base/status.h"

namespace lockstep::testing {

struct HostOptions {
  std::string rate = {};  // of every link, both ways, as tc(8) writes it: "1gbit". Empty: unshaped.
};

class HostSet {
 public:
  // `unavailable` if this process cannot create hosts: the message names the privilege, the command or the kernel
  // feature that is missing. See LOCKSTEP_MAKE_HOSTS_OR_SKIP.
  static Result<HostSet> create(int hosts, const HostOptions& options = {});

  int size() const { return static_cast<int>(hosts_.size()); }
  // The address of a host on the common network.
  static std::string address(int host);
  static std::string ipv6_address(int host);
  // For setns(2) in a process or thread that shall run on the host; close-on-exec.
  int namespace_fd(int host) const { return hosts_[static_cast<std::size_t>(host)].get(); }

  // Takes the host's link down (as if its cable were pulled: packets vanish, and no connection is closed), and
  // up again. `internal` if ip(8) fails.
  Status cut_link(int host) { return set_link(host, "down"); }
  Status restore_link(int host) { return set_link(host, "up"); }
  // What a host's firewall does with packets that arrive.
  enum class Firewall : std::uint8_t {
    open,
    drop,    // TCP packets vanish: a cut in one direction
    lose,    // some TCP packets vanish
    reject,  // each is answered with RST, as if no process listened and no connection existed
  };
  // For packets from all other hosts. `percent`: how many `lose` drops. `unavailable` if nft(8) is missing or the
  // kernel lacks what it needs.
  Status set_firewall(int host, Firewall firewall, int percent = 5);

 private:
  HostSet() = default;
  Status set_link(int host, const char* state);

  UniqueFd switch_;  // the namespace with the bridge
  std::vector<UniqueFd> hosts_;
};

// A listening TCP socket bound to `address` inside the namespace (namespace_fd < 0: this one), on a
// port that the kernel chose; close-on-exec. Throws std::system_error.
struct Listener {
  UniqueFd fd;
  int port = 0;
};
Listener listen_inside(int namespace_fd, const std::string& address);

}  // namespace lockstep::testing

// Declares `name`, a HostSet of `count` hosts, or skips the test with the reason.
#define LOCKSTEP_MAKE_HOSTS_OR_SKIP(name, count, ...)                                          \
  auto name##_result = ::lockstep::testing::HostSet::create(count __VA_OPT__(, ) __VA_ARGS__); \
  if (name##_result.status().code() == ::lockstep::StatusCode::unavailable)                    \
    GTEST_SKIP() << name##_result.status().message();                                          \
  ASSERT_TRUE(name##_result.ok()) << name##_result.status().to_string();                       \
  ::lockstep::testing::HostSet& name = name##_result.value()
