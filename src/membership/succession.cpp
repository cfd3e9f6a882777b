#include "membership/succession.h"

#include <algorithm>
#include <functional>

#include "membership/quorum.h"

namespace lockstep::membership {
namespace {

// Those with this number or a greater one, the newest first.
void add_from(std::int64_t number, std::vector<const Generation*>& bases, std::vector<const Generation*> generations) {
  std::ranges::stable_sort(generations, std::ranges::greater(), &Generation::number);
  for (const Generation* const generation : generations) {
    const auto same = [&](const Generation* other) { return other->id == generation->id; };
    if (generation->number >= number && std::none_of(bases.begin(), bases.end(), same)) bases.push_back(generation);
  }
}

std::int64_t newest_number(const std::vector<const Generation*>& generations) {
  std::int64_t newest = 1;
  for (const Generation* const generation : generations) newest = std::max(newest, generation->number);
  return newest;
}

bool is_of(const std::string& witness_register, const WitnessView* witness) {
  return witness != nullptr && witness_register.starts_with(witness->id + "/");
}

}  // namespace

std::int64_t Bases::next_number() const {
  std::int64_t number = 1;
  for (const Generation* const base : all) number = std::max(number, base->number + 1);
  return number;
}

Bases find_bases(const std::vector<const Generation*>& established, std::vector<const Generation*> accepted,
                 const WitnessView* witness) {
  while (true) {
    Bases bases;
    const std::int64_t newest = newest_number(established);
    add_from(newest, bases.all, established);
    if (!bases.all.empty()) bases.established = bases.all.front();
    add_from(newest, bases.all, accepted);
    if (witness == nullptr) return bases;
    const std::size_t before = accepted.size();
    for (const Generation* const base : bases.all) {
      const auto vote = witness->votes.find(base->witness);
      if (vote == witness->votes.end()) continue;
      if (std::ranges::find(accepted, &vote->second) == accepted.end()) accepted.push_back(&vote->second);
    }
    if (accepted.size() == before) return bases;
  }
}

bool is_void(const Generation& generation, const EndedWith& ended_with) {
  if (generation.number <= 1) return false;
  return std::ranges::any_of(generation.members, [&](const Member& member) {
    const auto found = ended_with.find(member.id);
    if (found == ended_with.end()) return false;
    const Generation& newest = found->second;
    return newest.number < generation.number || (newest.number == generation.number && newest.id != generation.id);
  });
}

std::optional<WitnessView> without_void_votes(std::optional<WitnessView> witness, const EndedWith& ended_with) {
  if (witness) std::erase_if(witness->votes, [&](const auto& vote) { return is_void(vote.second, ended_with); });
  return witness;
}

std::vector<const Generation*> votes_after(const std::vector<const Generation*>& generations,
                                           const WitnessView& witness) {
  std::vector<const Generation*> all = generations;
  for (std::size_t i = 0; i < all.size(); ++i) {  // `all` grows
    const auto vote = witness.votes.find(all[i]->witness);
    if (vote == witness.votes.end() || std::ranges::find(all, &vote->second) != all.end()) continue;
    all.push_back(&vote->second);
  }
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(generations.size()));
  return all;
}

QuorumCheck check_quorums(const Bases& bases, const std::set<std::string>& ended, const std::set<std::string>& members,
                          const WitnessView* witness) {
  QuorumCheck check;
  for (const Generation* const base : bases.all) {
    TieBreaker tie_breaker = TieBreaker::first_member;
    if (!base->witness.empty())
      tie_breaker = is_of(base->witness, witness) ? TieBreaker::witness : TieBreaker::lost_witness;
    Quorum quorum = count_quorum(base->ids(), ended, members, tie_breaker);
    if (!quorum.reached) return {.missing = base, .reason = std::move(quorum.reason)};
    const bool is_new = std::ranges::find(check.votes, base->witness) == check.votes.end();
    if (quorum.needs_vote && is_new) check.votes.push_back(base->witness);
  }
  return check;
}

std::string next_register(const Bases& bases, const WitnessView* witness, const std::string& fresh_id) {
  if (witness == nullptr) return "";
  for (const Generation* const base : bases.all) {
    if (is_of(base->witness, witness)) return base->witness;
  }
  return witness->id + "/" + fresh_id;
}

}  // namespace lockstep::membership
