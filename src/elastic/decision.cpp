#include "elastic/decision.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "elastic/quorum.h"

namespace lockstep::elastic {
namespace {

// The generations of which a quorum is needed: of those with the highest number, each different one. The one that
// was lived in first.
struct Bases {
  const Generation* lived_in = nullptr;
  std::vector<const Generation*> all;
};

void add_newest(std::vector<const Generation*>& bases, const std::vector<Registration>& here,
                Generation Registration::*which) {
  std::int64_t newest = 1;
  for (const Registration& one : here) newest = std::max(newest, (one.*which).number);
  for (const Registration& one : here) {
    const Generation& generation = one.*which;
    const auto same = [&](const Generation* other) { return other->id == generation.id; };
    if (generation.number == newest && std::none_of(bases.begin(), bases.end(), same)) bases.push_back(&generation);
  }
}

Bases find_bases(const std::vector<Registration>& here) {
  Bases bases;
  add_newest(bases.all, here, &Registration::established);
  if (!bases.all.empty()) bases.lived_in = bases.all.front();
  add_newest(bases.all, here, &Registration::accepted);
  return bases;
}

Absence absence_of(const Attendance& attendance, const std::string& id) {
  const auto found = attendance.absent.find(id);
  return found == attendance.absent.end() ? Absence{} : found->second;
}

std::set<std::string> ids_of_ended(const Attendance& attendance) {
  std::set<std::string> ended;
  for (const auto& [id, absence] : attendance.absent) {
    if (absence.kind == Absence::Kind::ended) ended.insert(id);
  }
  return ended;
}

// Whom it is still worth to wait for, and why.
std::optional<std::string> awaited(const Member& member, const Absence& absence, const Policy& policy) {
  switch (absence.kind) {
    case Absence::Kind::vanished:
    case Absence::Kind::ended: return std::nullopt;
    case Absence::Kind::unknown: return fmt::format("{} (not yet asked)", member.describe());
    case Absence::Kind::silent:
      if (absence.lasts >= policy.silent_timeout) return std::nullopt;
      return fmt::format("{} (does not answer)", member.describe());
    case Absence::Kind::alive:
      if (absence.lasts >= policy.straggler_timeout) return std::nullopt;
      return fmt::format("{} (lives, but has not come)", member.describe());
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

// The state that counts is that of the most advanced process that lived in the newest generation: others may have gone
// on with a step that this one had dropped. Where nobody of those has a state (they had just been let in), that of a
// member that never got to live in it is as good: without it no step can have been made there.
const Registration* find_source(const std::vector<const Registration*>& members, const Generation* lived_in) {
  const auto rank = [&](const Registration& one) {
    if (lived_in == nullptr || one.established.id == lived_in->id) return 2;
    return lived_in->rank_of(one.member.id) >= 0 ? 1 : 0;
  };
  const Registration* source = nullptr;
  for (const Registration* one : members) {
    if (one->step < 0 || rank(*one) == 0) continue;
    const bool better =
        source == nullptr || rank(*one) > rank(*source) || (rank(*one) == rank(*source) && one->step > source->step);
    if (better) source = one;
  }
  return source;
}

Verdict wait_or_give_up(const Attendance& attendance, const Policy& policy, const std::string& reason,
                        bool has_quorum) {
  const bool too_long = attendance.elapsed >= policy.quorum_timeout;
  return {.kind = too_long ? Verdict::Kind::give_up : Verdict::Kind::wait,
          .answer = {.kind = Answer::Kind::give_up, .reason = reason},
          .reason = reason,
          .has_quorum = has_quorum};
}

Verdict form(const std::vector<const Registration*>& members, const Registration& source, const Bases& bases,
             const std::string& fresh_id) {
  Answer answer{.kind = Answer::Kind::join};
  for (const Generation* base : bases.all) {
    answer.generation.number = std::max(answer.generation.number, base->number + 1);
  }
  answer.generation.id = fresh_id;
  for (const Registration* one : members) {
    answer.generation.members.push_back(one->member);
    if (one->step != source.step || one->established.id != source.established.id) answer.transfer = true;
  }
  answer.source = answer.generation.rank_of(source.member.id);
  answer.reason = fmt::format("generation {} of {} ranks", answer.generation.number, members.size());
  return {.kind = Verdict::Kind::form, .answer = answer, .reason = answer.reason, .has_quorum = true};
}

}  // namespace

Verdict decide(const Attendance& attendance, const Policy& policy, const std::string& fresh_id) {
  const Bases bases = find_bases(attendance.here);
  if (bases.all.empty()) {
    return wait_or_give_up(attendance, policy, "nobody here belongs to the job yet", false);
  }
  std::set<std::string> here;
  for (const Registration& one : attendance.here) here.insert(one.member.id);
  const std::set<std::string> ended = ids_of_ended(attendance);
  std::vector<std::string> missing;
  for (const Generation* base : bases.all) {
    const Quorum quorum = count_quorum(base->ids(), ended, here);
    if (!quorum.reached) {
      return wait_or_give_up(attendance, policy,
                             fmt::format("of the {} ranks of generation {}, {}. Without them another part of the job "
                                         "might go on at the same time",
                                         base->members.size(), base->number, quorum.reason),
                             false);
    }
    for (const Member& member : base->members) {
      if (here.contains(member.id)) continue;
      if (auto who = awaited(member, absence_of(attendance, member.id), policy)) missing.push_back(*std::move(who));
    }
  }
  if (!missing.empty()) {
    return {.kind = Verdict::Kind::wait,
            .reason = fmt::format("waiting for {}", fmt::join(missing, ", ")),
            .has_quorum = true};
  }
  std::vector<const Registration*> members = in_order_of_rank(attendance.here, bases);
  if (members.size() > static_cast<std::size_t>(policy.max_ranks)) {
    members.resize(static_cast<std::size_t>(policy.max_ranks));
  }
  if (members.size() < static_cast<std::size_t>(policy.min_ranks)) {
    return wait_or_give_up(
        attendance, policy,
        fmt::format("{} ranks are left, and at least {} are wanted", members.size(), policy.min_ranks), true);
  }
  const Registration* const source = find_source(members, bases.lived_in);
  if (source == nullptr) {
    return {
        .kind = Verdict::Kind::give_up,
        .answer = {.kind = Answer::Kind::give_up,
                   .reason = "every process that had the state of the training is lost; start again from a snapshot"},
        .reason = "every process that had the state of the training is lost; start again from a snapshot",
        .has_quorum = true};
  }
  return form(members, *source, bases, fresh_id);
}

}  // namespace lockstep::elastic
