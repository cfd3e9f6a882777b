// Options for forming a group, and for its operations.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep {

struct CommunicatorOptions {
  std::string name = "world";
  // How long forming the group may take.
  std::chrono::milliseconds init_timeout{std::chrono::minutes(5)};
  // Deadline of an operation that sets none of its own.
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};
  // A peer from which nothing was heard for this long (it is stopped, or its link is cut) is lost.
  std::chrono::milliseconds peer_timeout{std::chrono::seconds(10)};
  // An operation that waits this long logs which ranks it waits for, and again at doubling intervals.
  std::chrono::milliseconds warn_after{std::chrono::seconds(10)};
  // Overrides the choice of algorithm, as LOCKSTEP_ALGORITHM does: "ring",
  // "all_reduce=ring,broadcast=chain". Empty: the selector chooses.
  std::string algorithm = {};
  // Interface or address for connections to other hosts. Empty: the interface that reaches MASTER_ADDR (or the host in
  // the init_method). LOCKSTEP_INTERFACE does the same.
  std::string network_interface = {};
};

// How the ranks find each other: the init_method, as in PyTorch.
struct InitOptions {
  // "env://", "tcp://host:port?rank=0&world_size=2", "file:///path?rank=0&world_size=2"
  std::string init_method = "env://";
  std::optional<int> rank = std::nullopt;        // if it is not in the init_method
  std::optional<int> world_size = std::nullopt;  // if it is not in the init_method
  CommunicatorOptions group = {};
};

}  // namespace lockstep
