// Which generations a new one continues: it may be decided only if its members contain a quorum (quorum.h) of each.
// Pure functions, for ranks (decision.h) and for nodes (launch/meeting). docs/membership.md has the proof.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "membership/records.h"
#include "membership/witness.h"

namespace lockstep::membership {

// The newest generation that any of the present processes was an established member of, and all newer ones that any of
// them, or the site of an ended process, has accepted. Not only the newest of these: it may never have become a group,
// and hide one that did. Two leaders may have used one number: then each of that number.
struct Bases {
  const Generation* established = nullptr;  // null: none
  std::vector<const Generation*> all;       // each once, the newest established one first
  // The number of the next generation.
  std::int64_t next_number() const;
};

// Generations with number 0 do not count. `witness`: null if none can be reached; its votes for the bases' registers
// count as accepted. The result refers to the arguments.
Bases find_bases(const std::vector<const Generation*>& established, std::vector<const Generation*> accepted,
                 const WitnessView* witness = nullptr);

// By member id: the newest generation that the site of a member had accepted when the member had ended (attester.h).
using EndedWith = std::map<std::string, Generation>;
// True if a member has ended without having accepted the generation: it can never become a group, and does not count.
// Never true of the first one: there is none before it of which a quorum would be needed instead.
bool is_void(const Generation& generation, const EndedWith& ended_with);
std::optional<WitnessView> without_void_votes(std::optional<WitnessView> witness, const EndedWith& ended_with);

// The witness' votes in the registers of these generations, and of those votes in turn. It has other registers, too: of
// other jobs, and of both the ranks and the nodes of this one.
std::vector<const Generation*> votes_after(const std::vector<const Generation*>& generations,
                                           const WitnessView& witness);

struct QuorumCheck {
  const Generation* missing = nullptr;  // the first of the bases of which the members are no quorum; null: of each
  std::string reason =
      {};  // human-readable: "1 of the 3 that may still be alive are present; more than half are needed"
  std::vector<std::string> votes = {};  // registers of the witness (witness.h): it must vote for the decision
};
QuorumCheck check_quorums(const Bases& bases, const std::set<std::string>& ended, const std::set<std::string>& members,
                          const WitnessView* witness = nullptr);

// The register of the witness for the next generation; empty if none can be reached. `fresh_id` names a new one.
std::string next_register(const Bases& bases, const WitnessView* witness, const std::string& fresh_id);

}  // namespace lockstep::membership
