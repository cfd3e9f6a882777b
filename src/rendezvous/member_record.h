// The records that ranks write into the store while they form a group. Pure functions; parsers
// accept any bytes, check lengths before they allocate, and return protocol_error for what no
// rank of this version writes. Layout: docs/rendezvous.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/status.h"

namespace lockstep {

// One process that claims a rank.
struct MemberRecord {
  std::string nonce;  // fresh and random for each attempt to form a group
  std::int32_t rank = 0;
  std::int32_t world_size = 1;
  std::int64_t pid = 0;
  std::string host;             // human-readable name
  std::string process_space;    // equal for processes whose pids can be compared
  std::string network_space;    // equal for processes in one network namespace
  std::string host_id;          // LOCKSTEP_HOST_ID; ranks with different ones count as different hosts
  std::string unix_name;        // abstract Unix name on which it listens
  std::string machine = {};     // equal for processes of one machine, regardless of namespaces; empty: unknown
  std::int32_t processors = 0;  // of the machine; 0: unknown

  // "rank 3 (host node7, pid 4711)"
  std::string describe() const;
  friend bool operator==(const MemberRecord&, const MemberRecord&) = default;
};

// What rank 0 answers to a claim.
struct Invitation {
  std::string session;  // fresh and random; part of all later keys
  MemberRecord leader;
  friend bool operator==(const Invitation&, const Invitation&) = default;
};

// Why a group was not formed; the same for all ranks.
struct FailureRecord {
  Status status;
  std::int32_t gone_rank = -1;  // the rank whose process has ended, if that is the reason
  friend bool operator==(const FailureRecord&, const FailureRecord&) = default;
};

std::string format(const MemberRecord& record);
std::string format(const Invitation& invitation);
std::string format(const FailureRecord& failure);
std::string format(const std::vector<std::string>& values);
std::string format(const std::vector<std::int32_t>& ranks);

// One record after the other: the claims of all processes that announced themselves as one rank.
Result<std::vector<MemberRecord>> parse_member_records(std::string_view bytes);
Result<Invitation> parse_invitation(std::string_view bytes);
Result<FailureRecord> parse_failure(std::string_view bytes);
Result<std::vector<std::string>> parse_values(std::string_view bytes);
Result<std::vector<std::int32_t>> parse_ranks(std::string_view bytes);

}  // namespace lockstep
