// Hosts on one machine: network namespaces joined by a bridge in a namespace of its own. Nothing is
// added to the machine's own network.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench {

class VirtualNetwork {
 public:
  // Every host's interface, and the network that their addresses are of.
  static inline const std::string kDevice = "eth0";
  static inline const std::string kAddresses = "10.77.0.0/24";

  // Names contain this process's id. `rate` ("1gbit", or empty) shapes every host's link, in both
  // directions. Throws BenchError, e.g. without root; what was made until then is removed.
  VirtualNetwork(int hosts, const std::string& rate);
  ~VirtualNetwork();
  VirtualNetwork(const VirtualNetwork&) = delete;
  VirtualNetwork& operator=(const VirtualNetwork&) = delete;

  // What to put before a command to run it on a host.
  std::vector<std::string> command_prefix(int host) const;
  const std::vector<std::string>& addresses() const { return addresses_; }
  // How many bytes each host has sent so far, headers included.
  std::vector<std::uint64_t> bytes_sent() const;

 private:
  void build(const std::string& rate);
  void remove();
  std::string name_of(int host) const;

  std::string switch_;
  std::vector<std::string> addresses_;
  std::vector<std::string> made_;  // namespaces
};

}  // namespace lockstep::bench
