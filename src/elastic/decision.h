// What a leader decides about the next generation, from what it knows. A pure function.
//
// A decision needs a quorum (quorum.h) of the newest generation that any registrant has accepted, and of the newest
// one that any has lived in. Both, because a decision that was accepted by some may not have become a group, while
// one that became a group was accepted by all its members. And since a generation becomes a group only when every one
// of its members joins it, and a process joins one at a time, no two decisions can both come true.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "elastic/records.h"

namespace lockstep::elastic {

using Duration = std::chrono::steady_clock::duration;
using TimePoint = std::chrono::steady_clock::time_point;

struct Policy {
  int min_ranks = 1;
  int max_ranks = std::numeric_limits<int>::max();
  // A member whose door does not answer for this long is left behind; it may come back as a newcomer.
  Duration silent_timeout = std::chrono::seconds(5);
  // A member that lives but does not come, because it is busy: left behind after this time.
  Duration straggler_timeout = std::chrono::seconds(60);
  // How long to wait with too few ranks, or without a quorum, before the job ends.
  Duration quorum_timeout = std::chrono::minutes(5);
};

// What is known of a member that has not registered.
struct Absence {
  enum class Kind : std::uint8_t {
    unknown,
    alive,
    silent,    // stopped, or behind a cut link: it may go on there
    vanished,  // has ended, but may have gone on in another generation before: counts for the quorum as if it lived
    ended,     // has ended as a member: does not count
  };
  Kind kind = Kind::unknown;
  Duration lasts{};  // how long it has been so; of no interest for `ended`
};

struct Attendance {
  std::vector<Registration> here = {};         // in order of arrival, the leader itself included
  std::map<std::string, Absence> absent = {};  // by member id; whoever is not in it is unknown
  Duration elapsed{};                          // since the leader began to wait
};

struct Verdict {
  enum class Kind : std::uint8_t { wait, form, give_up };
  Kind kind = Kind::wait;
  Answer answer = {};       // form: for all members of its generation
  std::string reason = {};  // for people
  bool has_quorum = false;
};

// `fresh_id` becomes the id of the generation that is formed.
Verdict decide(const Attendance& attendance, const Policy& policy, const std::string& fresh_id);

}  // namespace lockstep::elastic
