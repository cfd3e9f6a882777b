// Virtual hosts on one machine: network namespaces joined by a bridge, which is in a namespace of its own. The
// machine's own network is not changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench {

// Why this process cannot create virtual hosts, or empty: the missing privilege, program or kernel feature. Found by
// trying, with a namespace that is removed again. `shaped`: the links are to have a rate.
std::string why_no_virtual_network(bool shaped);

class VirtualNetwork {
 public:
  // The name of every host's interface, and the network of their addresses.
  static inline const std::string kDevice = "eth0";
  static inline const std::string kAddresses = "10.77.0.0/24";

  // The namespaces' names contain this process's id. `rate` ("1gbit", or empty) shapes every host's link, in both
  // directions. Throws BenchError, for example if why_no_virtual_network() has a reason; whatever was created until
  // then is removed.
  VirtualNetwork(int hosts, const std::string& rate);
  ~VirtualNetwork();
  VirtualNetwork(const VirtualNetwork&) = delete;
  VirtualNetwork& operator=(const VirtualNetwork&) = delete;

  // The words to put before a command to run it on a host.
  std::vector<std::string> command_prefix(int host) const;
  const std::vector<std::string>& addresses() const { return addresses_; }
  // The number of bytes that each host has sent so far, headers included.
  std::vector<std::uint64_t> bytes_sent() const;

 private:
  void build(const std::string& rate);
  void remove();
  std::string name_of(int host) const;

  std::string switch_;
  std::vector<std::string> addresses_;
  std::vector<std::string> created_;  // namespaces
};

}  // namespace lockstep::bench
