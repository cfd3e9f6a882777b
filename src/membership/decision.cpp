#include "membership/decision.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "membership/succession.h"

namespace lockstep::membership {
namespace {

// The generations that registrants have left: members of them that did not establish them. A process never returns to a
// generation that it has left, and commits need all members.
std::set<std::string> left_generations(const std::vector<Registration>& present) {
  std::set<std::string> left;
  for (const Registration& one : present) {
    const bool is_member = one.accepted.rank_of(one.member.id) >= 0;
    if (is_member && one.accepted.id != one.established.id) left.insert(one.accepted.id);
  }
  return left;
}

// Which generations can never commit a step. The first one counts in any case: there is none before it.
class VoidGenerations {
 public:
  explicit VoidGenerations(const MembershipView& view)
      : known_(left_generations(view.present)), ended_with_(view.ended_with) {
    for (const Registration& one : view.present) known_.insert(one.void_ids.begin(), one.void_ids.end());
  }
  bool contains(const Generation& one) const {
    return one.number > 1 && (known_.contains(one.id) || is_void(one, ended_with_));
  }

 private:
  std::set<std::string> known_;
  const EndedWith& ended_with_;
};

std::optional<WitnessView> without_void_votes(std::optional<WitnessView> witness, const VoidGenerations& is_void) {
  if (witness) std::erase_if(witness->votes, [&](const auto& vote) { return is_void.contains(vote.second); });
  return witness;
}

Bases bases_of(const MembershipView& view, const VoidGenerations& is_void, const WitnessView* witness) {
  std::vector<const Generation*> established, accepted;
  const auto add = [&](const Generation& one) {
    if (!is_void.contains(one)) accepted.push_back(&one);
  };
  for (const Registration& one : view.present) {
    established.push_back(&one.established);
    accepted.push_back(&one.established);  // it was accepted, too, and what the process accepted since may be void
    add(one.accepted);
  }
  for (const Attested& one : view.attested) {
    if (one.may_hide_others) accepted.push_back(&one.generation);
    if (!one.may_hide_others) add(one.generation);
  }
  return find_bases(established, accepted, witness);
}

// Greater than all known ones, also those of void generations: a host accepts one generation of each number.
std::int64_t next_number(const MembershipView& view, const Bases& bases) {
  std::int64_t number = bases.next_number();
  for (const Registration& one : view.present) number = std::max(number, one.accepted.number + 1);
  for (const Attested& one : view.attested) number = std::max(number, one.generation.number + 1);
  if (!view.witness) return number;
  for (const auto& [name, vote] : view.witness->votes) number = std::max(number, vote.number + 1);
  return number;
}

Absence absence_of(const MembershipView& view, const std::string& id) {
  const auto found = view.absent.find(id);
  return found == view.absent.end() ? Absence{} : found->second;
}

std::set<std::string> ids_of_ended(const MembershipView& view) {
  std::set<std::string> ended;
  for (const auto& [id, absence] : view.absent) {
    if (absence.kind == Absence::Kind::ended) ended.insert(id);
  }
  return ended;
}

// Why the leader still waits for this member; nothing if it no longer does.
std::optional<std::string> awaited(const Member& member, const Absence& absence, const Policy& policy,
                                   Duration elapsed) {
  switch (absence.kind) {
    case Absence::Kind::unreachable:
    case Absence::Kind::ended: return std::nullopt;
    case Absence::Kind::unknown:
      if (elapsed >= policy.quorum_timeout) return std::nullopt;
      return fmt::format("{} (not yet probed)", member.describe());
    case Absence::Kind::silent:
      if (absence.lasts >= policy.silent_timeout) return std::nullopt;
      return fmt::format("{} (does not answer)", member.describe());
    case Absence::Kind::alive:
      if (absence.lasts >= policy.straggler_timeout) return std::nullopt;
      return fmt::format("{} (alive, but has not registered)", member.describe());
  }
  return std::nullopt;
}

// Members of the bases in the order of their ranks there, then newcomers in the order of their arrival.
std::vector<const Registration*> in_order_of_rank(const std::vector<Registration>& here, const Bases& bases) {
  std::vector<const Registration*> order;
  const auto add = [&](const Registration& one) {
    const auto same = [&](const Registration* other) { return other->member.id == one.member.id; };
    if (std::none_of(order.begin(), order.end(), same)) order.push_back(&one);
  };
  for (const Generation* base : bases.all) {
    for (const Member& member : base->members) {
      const auto found =
          std::find_if(here.begin(), here.end(), [&](const auto& one) { return one.member.id == member.id; });
      if (found != here.end()) add(*found);
    }
  }
  for (const Registration& one : here) add(one);
  return order;
}

// The state to continue from is that of the most advanced member of the newest established generation: a process left
// behind by it may have completed a step that this generation discarded. If none of those has a state (they had just
// joined), the state of a member that never established that generation is equally valid: no step can have been made
// without it. Unless it was outdated when that generation was decided: then others had made steps before, without it.
enum class StateKind : std::uint8_t { outdated, of_member, newest };

StateKind state_of(const Registration& one, const Generation* established) {
  if (established == nullptr || one.established.id == established->id) return StateKind::newest;
  const int rank = established->rank_of(one.member.id);
  return rank >= 0 && !established->is_outdated(rank) ? StateKind::of_member : StateKind::outdated;
}

const Registration* find_source(const std::vector<const Registration*>& members, const Generation* established) {
  const auto order = [&](const Registration& one) { return std::pair(state_of(one, established), one.step); };
  const Registration* source = nullptr;
  for (const Registration* one : members) {
    if (one->step < 0 || state_of(*one, established) == StateKind::outdated) continue;
    if (source == nullptr || order(*one) > order(*source)) source = one;
  }
  return source;
}

Decision wait_or_give_up(const MembershipView& view, const Policy& policy, const std::string& reason, bool has_quorum) {
  const bool too_long = view.elapsed >= policy.quorum_timeout;
  return {.kind = too_long ? Decision::Kind::give_up : Decision::Kind::wait,
          .answer = {.kind = Answer::Kind::give_up, .reason = reason},
          .reason = reason,
          .has_quorum = has_quorum};
}

Decision form(const std::vector<const Registration*>& members, const Registration& source, const Bases& bases,
              std::int64_t number, const std::string& fresh_id) {
  Answer answer{.kind = Answer::Kind::join};
  answer.generation.number = number;
  answer.generation.id = fresh_id;
  answer.generation.job = bases.all.front()->job;
  for (const Registration* one : members) {
    answer.generation.members.push_back(one->member);
    if (one->step != source.step || one->established.id != source.established.id) answer.transfer = true;
    if (state_of(*one, bases.established) == StateKind::outdated) {
      answer.generation.outdated.push_back(static_cast<int>(answer.generation.members.size()) - 1);
    }
  }
  answer.source = answer.generation.rank_of(source.member.id);
  answer.reason = fmt::format("generation {} of {} ranks", answer.generation.number, members.size());
  return {.kind = Decision::Kind::form, .answer = answer, .reason = answer.reason, .has_quorum = true};
}

}  // namespace

Decision decide(const MembershipView& view, const Policy& policy, const std::string& fresh_id) {
  const VoidGenerations is_void(view);
  const std::optional<WitnessView> counted = without_void_votes(view.witness, is_void);
  const WitnessView* const witness = counted ? &*counted : nullptr;
  const Bases bases = bases_of(view, is_void, witness);
  if (bases.all.empty()) {
    return wait_or_give_up(view, policy, "no registered process belongs to the job yet", false);
  }
  std::vector<const Registration*> members = in_order_of_rank(view.present, bases);
  if (members.size() > static_cast<std::size_t>(policy.max_ranks)) {
    members.resize(static_cast<std::size_t>(policy.max_ranks));
  }
  std::set<std::string> here;
  for (const Registration* one : members) here.insert(one->member.id);
  const std::set<std::string> ended = ids_of_ended(view);
  std::vector<std::string> missing;
  QuorumCheck check = check_quorums(bases, ended, here, witness);
  if (check.missing != nullptr) {
    return wait_or_give_up(view, policy,
                           fmt::format("of the {} ranks of generation {}, {}. Without them another part of the job "
                                       "might continue at the same time",
                                       check.missing->members.size(), check.missing->number, check.reason),
                           false);
  }
  for (const Generation* base : bases.all) {
    for (const Member& member : base->members) {
      if (here.contains(member.id)) continue;
      if (auto who = awaited(member, absence_of(view, member.id), policy, view.elapsed))
        missing.push_back(*std::move(who));
    }
  }
  if (!missing.empty()) {
    return {.kind = Decision::Kind::wait,
            .reason = fmt::format("waiting for {}", fmt::join(missing, ", ")),
            .has_quorum = true};
  }
  if (members.size() < static_cast<std::size_t>(policy.min_ranks)) {
    return wait_or_give_up(
        view, policy, fmt::format("{} ranks are left, but at least {} are required", members.size(), policy.min_ranks),
        true);
  }
  const Registration* const source = find_source(members, bases.established);
  if (source == nullptr) {
    return {.kind = Decision::Kind::give_up,
            .answer = {.kind = Answer::Kind::give_up, .reason = kStateLost},
            .reason = kStateLost,
            .has_quorum = true};
  }
  Decision decision = form(members, *source, bases, next_number(view, bases), fresh_id);
  decision.answer.generation.witness = next_register(bases, witness, fresh_id);
  decision.votes = std::move(check.votes);
  return decision;
}

}  // namespace lockstep::membership
