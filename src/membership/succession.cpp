#include "membership/succession.h"

#include <algorithm>

#include "membership/quorum.h"

namespace lockstep::membership {
namespace {

void add_newest(std::vector<const Generation*>& bases, const std::vector<const Generation*>& generations) {
  std::int64_t newest = 1;
  for (const Generation* const generation : generations) newest = std::max(newest, generation->number);
  for (const Generation* const generation : generations) {
    const auto same = [&](const Generation* other) { return other->id == generation->id; };
    if (generation->number == newest && std::none_of(bases.begin(), bases.end(), same)) bases.push_back(generation);
  }
}

}  // namespace

std::int64_t Bases::next_number() const {
  std::int64_t number = 1;
  for (const Generation* const base : all) number = std::max(number, base->number + 1);
  return number;
}

Bases find_bases(const std::vector<const Generation*>& established, const std::vector<const Generation*>& accepted) {
  Bases bases;
  add_newest(bases.all, established);
  if (!bases.all.empty()) bases.established = bases.all.front();
  add_newest(bases.all, accepted);
  return bases;
}

std::optional<MissingQuorum> find_missing_quorum(const Bases& bases, const std::set<std::string>& ended,
                                                 const std::set<std::string>& members) {
  for (const Generation* const base : bases.all) {
    Quorum quorum = count_quorum(base->ids(), ended, members);
    if (!quorum.reached) return MissingQuorum{.base = base, .reason = std::move(quorum.reason)};
  }
  return std::nullopt;
}

}  // namespace lockstep::membership
