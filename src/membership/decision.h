// How a leader decides on the next generation, given the registrations and absences that it has seen. A pure function.
//
// The members of a decided generation must contain a quorum (quorum.h) of the newest generation that any registrant was
// an established member of, and of each newer one that any registrant, or the site of an ended member, has accepted.
// Both are needed: a decision that some accepted may not have become a group, while one that became a group was
// accepted by all its members. A generation becomes a group only when all of its members join it, and a process joins
// one at a time, so at most one of several decisions becomes a group. A decision of which a member ended without having
// accepted it, or has left it without having established it, is void: it can never commit a step, and does not count.
// docs/membership.md has the proof.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "membership/records.h"
#include "membership/witness.h"

namespace lockstep::membership {

using Duration = std::chrono::steady_clock::duration;
using TimePoint = std::chrono::steady_clock::time_point;

struct Policy {
  int min_ranks = 1;
  int max_ranks = std::numeric_limits<int>::max();
  // A member that does not answer for this long is left behind; it may rejoin as a newcomer. One whose address refuses
  // connections is left behind at once: waiting would only help if it were about to come back.
  Duration silent_timeout = std::chrono::seconds(5);
  // A member that is alive but does not register, because it is busy, is left behind after this time.
  Duration straggler_timeout = std::chrono::seconds(60);
  // How long to wait with too few ranks, or without a quorum, before the job ends; and how long with a quorum for a
  // member of which nothing is known.
  Duration quorum_timeout = std::chrono::minutes(5);
};

// The state of a member that has not registered.
struct Absence {
  enum class Kind : std::uint8_t {
    unknown,
    alive,
    silent,       // stopped, or behind a cut link, where it may continue
    unreachable,  // refuses connections: it may have ended, or a firewall refuses them while it continues
    ended,        // attested (attester.h): does not count in the quorum
  };
  Kind kind = Kind::unknown;
  Duration lasts{};  // how long it has been in this state; unused for `ended`
};

// A generation that the site of an ended member had accepted.
struct Attested {
  Generation generation = {};
  bool may_hide_others = false;  // the site may have accepted older ones that are not known
};

// What the leader has seen so far.
struct MembershipView {
  std::vector<Registration> present = {};      // in order of arrival, including the leader's own
  std::map<std::string, Absence> absent = {};  // by member id; a member without an entry is unknown
  std::vector<Attested> attested = {};         // each generation once
  // The newest by member id: an ended member can have accepted nothing newer.
  std::map<std::string, Generation> ended_with = {};
  Duration elapsed{};                       // since the leader started waiting
  std::optional<WitnessView> witness = {};  // if there is one, and it answers
};

// Why a job cannot continue without a snapshot.
inline constexpr const char* kStateLost = "every process that had the training state is lost; restart from a snapshot";

struct Decision {
  enum class Kind : std::uint8_t { wait, form, give_up };
  Kind kind = Kind::wait;
  Answer answer = {};       // form: for all members of the generation
  std::string reason = {};  // human-readable
  bool has_quorum = false;
  std::vector<std::string> votes = {};  // form: registers in which the witness must vote for it first
};

// `fresh_id` becomes the id of the new generation.
Decision decide(const MembershipView& view, const Policy& policy, const std::string& fresh_id);

}  // namespace lockstep::membership
