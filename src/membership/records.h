// The records that the processes of an elastic job exchange, and their format. Pure functions; parsers accept any bytes
// and return protocol_error for what no process of this version writes. The format is JSON: the records are small, and
// it is human-readable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/status.h"

namespace lockstep::membership {

// One process.
struct Member {
  std::string id = {};    // fresh and random for every process
  std::string host = {};  // human-readable
  std::int64_t pid = 0;
  std::int64_t started = 0;        // with `pid`, the process for all time (base/process_state.h)
  std::string store_address = {};  // where its member store listens, "host:port" (member_store.h)

  // Processes of one site see each other's pids and share a roster (roster.h), where each writes what it accepts before
  // it acts on it. Empty: a site without a roster, of which nobody can attest an end.
  std::string site = {};
  // Where the launcher of its site attests the ends of its processes, "host:port" (attester.h); empty: nowhere.
  std::string attester = {};

  // "host node7, pid 4711"
  std::string describe() const;
  friend bool operator==(const Member&, const Member&) = default;
};

// One generation of the group, between two changes of its members: the members in rank order, as a leader decided.
struct Generation {
  std::int64_t number = 0;  // 0: none yet. Two leaders may use one number for different lists, of which at most one
                            // becomes a group
  std::string id = {};      // random
  std::string job = {};     // the id of the job's first generation, which all later ones keep
  std::vector<Member> members = {};
  std::string witness = {};  // the register of its witness (witness.h); empty: the first member breaks ties
  // The ranks that were no members of the newest established generation when this one was decided. A state that one of
  // them has must not count again, also if the source is lost before it has sent its own.
  std::vector<int> outdated = {};

  std::vector<std::string> ids() const;
  // The rank of a member; -1 if it is none.
  int rank_of(const std::string& member_id) const;
  bool is_outdated(int rank) const;
  friend bool operator==(const Generation&, const Generation&) = default;
};

// What a process sends to the leader.
struct Registration {
  Member member = {};
  Generation accepted = {};     // the newest decision that it accepted or knows of
  Generation established = {};  // the newest one that became a group with this process in it, also if it is left behind
  std::int64_t step = -1;  // number of steps in its state; -1: it has no state. The leader decides whether it counts
  // The ids of newer generations that this process knows to be void (decision.h). Another one may have asked later what
  // an ended process had accepted, and not be able to know. Also those that it has left: it may have accepted a newer
  // one since.
  std::vector<std::string> void_ids = {};
  friend bool operator==(const Registration&, const Registration&) = default;
};

// What the leader answers.
struct Answer {
  enum class Kind : std::uint8_t {
    join,      // the generation that the receiver belongs to
    again,     // the leader now follows another process: search for a leader again, among the members of `generation`,
               // the newest that it knows
    give_up,   // the job ends, for the reason given
    finished,  // the job completed
  };
  Kind kind = Kind::again;
  Generation generation = {};
  int source = 0;         // the rank whose state all members continue from
  bool transfer = false;  // some member's state differs from it
  std::string reason = {};
  std::vector<std::string> void_ids = {};  // again: as in a registration
  friend bool operator==(const Answer&, const Answer&) = default;
};

std::string format(const Generation& generation);
std::string format(const Registration& registration);
std::string format(const Answer& answer);
Result<Generation> parse_generation(std::string_view text);
Result<Registration> parse_registration(std::string_view text);
Result<Answer> parse_answer(std::string_view text);

}  // namespace lockstep::membership
