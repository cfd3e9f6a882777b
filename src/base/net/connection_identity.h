// Which process connects, and for what purpose. Both ends of a connection prove it to each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

// Longer roles and groups are refused.
inline constexpr std::size_t kMaxRoleBytes = 32;
inline constexpr std::size_t kMaxGroupBytes = 512;

struct ConnectionIdentity {
  std::string role = {};   // "store", "control", "p2p", "data"
  std::string group = {};  // unique id of the group's generation; empty for the store
  std::int32_t from_rank = -1;
  std::int32_t to_rank = -1;
  std::uint32_t index = 0;  // which of several connections of this role

  friend bool operator==(const ConnectionIdentity&, const ConnectionIdentity&) = default;
};

}  // namespace lockstep
