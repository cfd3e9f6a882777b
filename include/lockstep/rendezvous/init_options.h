// How a group is formed, and what it promises once it stands.
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
  // A peer that is silent this long (stopped, or its link cut) is lost.
  std::chrono::milliseconds peer_timeout{std::chrono::seconds(10)};
  // An operation that waits this long says for whom; again at doubling intervals.
  std::chrono::milliseconds warn_after{std::chrono::seconds(10)};
  // Overrides the choice of algorithm, as LOCKSTEP_ALGORITHM does: "ring",
  // "all_reduce=ring,broadcast=chain". Empty: the selector's own choice.
  std::string algorithm = {};
  // Interface or address for connections to other hosts; empty: the one that reaches the master.
  // LOCKSTEP_INTERFACE does the same.
  std::string network_interface = {};
};

// How to find the others: the init_method as in PyTorch.
struct InitOptions {
  // "env://", "tcp://host:port?rank=0&world_size=2", "file:///path?rank=0&world_size=2"
  std::string init_method = "env://";
  std::optional<int> rank = std::nullopt;        // where the init_method does not say
  std::optional<int> world_size = std::nullopt;  // where the init_method does not say
  CommunicatorOptions group = {};
};

}  // namespace lockstep
