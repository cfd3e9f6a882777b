// Which generations a new one continues: it may be decided only if its members contain a quorum (quorum.h) of each.
// Pure functions, for ranks (decision.h) and for nodes (launch/meeting). docs/membership.md has the proof.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "membership/records.h"

namespace lockstep::membership {

// The newest generation that any of the present processes was an established member of, and the newest one that any of
// them, or the site of an ended process, has accepted. Two leaders may have used one number: then each of that number.
struct Bases {
  const Generation* established = nullptr;  // null: none
  std::vector<const Generation*> all;       // each once, the newest established one first
  // The number of the next generation.
  std::int64_t next_number() const;
};

// Generations with number 0 do not count. The result refers to the arguments.
Bases find_bases(const std::vector<const Generation*>& established, const std::vector<const Generation*>& accepted);

struct MissingQuorum {
  const Generation* base;
  std::string reason;  // human-readable: "1 of the 3 that may still be alive are present; more than half are needed"
};
// The first of the bases of which the processes `members` are no quorum; nothing if they are one of each.
std::optional<MissingQuorum> find_missing_quorum(const Bases& bases, const std::set<std::string>& ended,
                                                 const std::set<std::string>& members);

}  // namespace lockstep::membership
