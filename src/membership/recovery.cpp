#include "membership/recovery.h"

#include <fmt/format.h>

#include <algorithm>

#include "membership/attester.h"
#include "membership/succession.h"

namespace lockstep::membership {
namespace {

using std::chrono::milliseconds;

// How often to probe a silent member store again, and that of a missing member.
constexpr Duration kReprobeInterval = milliseconds(500);
// Members that do not answer take long to probe: then several are probed at the same time.
constexpr std::size_t kProbesAtATime = 16;
constexpr Duration kMissingProbeInterval = milliseconds(100);
// A leader that waits reads registrations less and less often: after this share of the time that it has waited.
constexpr int kCollectShare = 50;
constexpr Duration kShortestCollectPause = milliseconds(1), kLongestCollectPause = milliseconds(50);
constexpr Duration kRefreshPause = milliseconds(100);

// The first generation always counts.
bool has_left(const Registration& self) {
  const Generation& accepted = self.accepted;
  return accepted.number > 1 && accepted.rank_of(self.member.id) >= 0 && accepted.id != self.established.id;
}

}  // namespace

const char* to_string(Action::Kind kind) {
  constexpr const char* kNames[] = {"probe", "follow", "collect", "refresh", "answer", "join", "give_up", "finished"};
  return kNames[static_cast<int>(kind)];
}

Recovery::Recovery(Registration self, Policy policy, TimePoint now, std::function<std::string()> fresh_id)
    : self_(std::move(self)),
      initially_accepted_(self_.accepted),
      policy_(policy),
      started_(now),
      fresh_id_(std::move(fresh_id)) {
  if (has_left(self_)) learn_void({self_.accepted.id});
  std::vector<std::string>& ids = self_.void_ids;
  if (ids.size() > kKeptVoidIds) ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(kKeptVoidIds));
}

Action Recovery::next(TimePoint now) {
  if (end_) return *end_;
  return following_ ? follow(now) : probe_or_lead(now);
}

// A member before the followed one may answer again; then that one leads.
Action Recovery::follow(TimePoint now) {
  std::vector<const Member*> due;
  for (const Member& member : self_.accepted.members) {
    if (member.id == following_->id || member.id == self_.member.id) break;
    if (status_of(member).kind == Absence::Kind::alive) {
      following_.reset();
      return probe_or_lead(now);
    }
    if (needs_probe(member, now, kReprobeInterval)) due.push_back(&member);
  }
  if (auto action = probe_again(due)) return *std::move(action);
  return {.kind = Action::Kind::follow, .member = *following_};
}

Action Recovery::probe_or_lead(TimePoint now) {
  std::vector<const Member*> unknown, due;
  for (const Member& member : self_.accepted.members) {
    const bool is_self = member.id == self_.member.id, is_alive = status_of(member).kind == Absence::Kind::alive;
    if (!is_self && !is_alive) {
      const bool is_unknown = status_of(member).kind == Absence::Kind::unknown;
      if (is_unknown) unknown.push_back(&member);
      if (!is_unknown && needs_probe(member, now, kReprobeInterval)) due.push_back(&member);
      continue;
    }
    if (!unknown.empty()) break;
    if (is_self) return lead(now);
    if (leading_) {  // it was silent, and others may have registered here meanwhile
      leading_ = false;
      return {.kind = Action::Kind::answer,
              .answer = {.kind = Answer::Kind::again,
                         .generation = self_.accepted,
                         .reason = "another process leads",
                         .void_ids = self_.void_ids}};
    }
    following_ = member;
    waits_for_ = fmt::format("the answer of the leader ({})", member.describe());
    return {.kind = Action::Kind::follow, .member = member};
  }
  if (!unknown.empty()) return probe(unknown);
  if (auto action = probe_again(due)) return *std::move(action);
  // A newcomer never leads: it has no state that the others could continue from.
  waits_for_ = "any member of the job";
  if (now - started_ >= policy_.quorum_timeout) {
    return end(Action::Kind::give_up,
               {.kind = Answer::Kind::give_up,
                .reason = fmt::format("none of the {} known members of the job could be reached",
                                      self_.accepted.members.size())},
               false);
  }
  if (all_ended_for(policy_.silent_timeout, now)) {  // long enough for a newer roster from another host to arrive
    return end(Action::Kind::give_up, {.kind = Answer::Kind::give_up, .reason = kStateLost}, false);
  }
  return {.kind = Action::Kind::refresh, .pause = kRefreshPause};
}

bool Recovery::all_ended_for(Duration duration, TimePoint now) const {
  return std::all_of(self_.accepted.members.begin(), self_.accepted.members.end(), [&](const Member& member) {
    const auto found = statuses_.find(member.id);
    return found != statuses_.end() && found->second.kind == Absence::Kind::ended &&
           now - found->second.since >= duration;
  });
}

Action Recovery::lead(TimePoint now) {
  if (!leading_) {
    leading_ = true;
    collected_ = false;
    registrations_.clear();
  }
  if (!collected_) return {.kind = Action::Kind::collect};
  collected_ = false;

  MembershipView view{.present = registrations_, .elapsed = now - started_, .witness = witness_};
  view.present.insert(view.present.begin(), self_);
  for (const auto& [id, status] : statuses_) view.absent[id] = {.kind = status.kind, .lasts = now - status.since};
  for (const auto& [id, attested] : attested_) view.attested.push_back(attested);
  view.ended_with = ended_with_;
  Decision decision = decide(view, policy_, fresh_id_());
  waits_for_ = decision.reason;
  switch (decision.kind) {
    case Decision::Kind::form:
      // More processes may be registered than max_ranks allows.
      if (decision.answer.generation.rank_of(self_.member.id) >= 0) {
        end(Action::Kind::join, std::move(decision.answer), true);
        end_->votes = std::move(decision.votes);
        return *end_;
      }
      break;
    case Decision::Kind::give_up: return end(Action::Kind::give_up, std::move(decision.answer), true);
    case Decision::Kind::wait: break;
  }
  if (auto probe = probe_absent(now)) return *probe;
  const Duration pause = std::clamp((now - started_) / kCollectShare, kShortestCollectPause, kLongestCollectPause);
  return {.kind = Action::Kind::collect, .pause = pause};
}

// Registered processes, the hosts of ended ones and the witness may know generations with members that this process
// does not know.
std::optional<Action> Recovery::probe_absent(TimePoint now) {
  std::set<std::string> settled = {self_.member.id};
  for (const Registration& one : registrations_) settled.insert(one.member.id);
  std::vector<const Generation*> generations = {&self_.accepted, &self_.established};
  for (const Registration& one : registrations_) {
    generations.insert(generations.end(), {&one.accepted, &one.established});
  }
  for (const auto& [id, attested] : attested_) {  // one older than the established one is no base
    if (attested.generation.number >= self_.established.number) generations.push_back(&attested.generation);
  }
  if (witness_) {
    for (const Generation* const vote : votes_after(generations, *witness_)) generations.push_back(vote);
  }
  std::vector<const Member*> due;
  for (const Generation* generation : generations) {
    for (const Member& member : generation->members) {
      if (settled.insert(member.id).second && needs_probe(member, now, kMissingProbeInterval)) due.push_back(&member);
    }
  }
  if (due.empty()) return std::nullopt;
  return probe(due);
}

// Those first that were not probed for the longest time: of many, the first may be due again before the last one's
// turn.
Action Recovery::probe(std::vector<const Member*> members) {
  std::ranges::stable_sort(members, {}, [this](const Member* member) { return status_of(*member).probed; });
  const bool some_are_silent =
      std::ranges::any_of(statuses_, [](const auto& status) { return status.second.kind == Absence::Kind::silent; });
  members.resize(std::min(members.size(), some_are_silent ? kProbesAtATime : 1));
  Action action{.kind = Action::Kind::probe};
  for (const Member* const member : members) action.members.push_back(*member);
  return action;
}

std::optional<Action> Recovery::probe_again(const std::vector<const Member*>& due) {
  probed_again_ = !probed_again_ && !due.empty();
  if (!probed_again_) return std::nullopt;
  return probe(due);
}

bool Recovery::needs_probe(const Member& member, TimePoint now, Duration interval) const {
  const auto found = statuses_.find(member.id);
  if (found == statuses_.end() || found->second.kind == Absence::Kind::unknown) return true;
  // A leader also probes living members again, because they may end. Other processes follow them instead.
  const bool may_change = found->second.kind == Absence::Kind::silent ||
                          found->second.kind == Absence::Kind::unreachable ||
                          (found->second.kind == Absence::Kind::alive && interval == kMissingProbeInterval);
  if (found->second.kind == Absence::Kind::silent) interval = kReprobeInterval;
  return may_change && now - found->second.probed >= interval;
}

void Recovery::set_status(const Member& member, Absence::Kind kind, TimePoint now) {
  MemberStatus& one = status_of(member);
  if (one.kind != kind) one.since = now;
  one.kind = kind;
  one.probed = now;
}

void Recovery::on_probe(const Member& member, const ProbeResult& result, TimePoint now) {
  switch (result.kind) {
    case ProbeResult::Kind::answered:
      set_status(member, Absence::Kind::alive, now);
      learn(result.newest());
      break;
    case ProbeResult::Kind::ended:
      set_status(member, Absence::Kind::ended, now);
      for (const Generation& one : result.accepted) {
        if (attested_.try_emplace(one.id, Attested{.generation = one}).second) learned_.push_back(one);
      }
      if (result.accepted.size() >= Attestation::kGenerations) {
        attested_[result.accepted.back().id].may_hide_others = true;
      }
      ended_with_.emplace(member.id, result.newest());
      update_accepted();  // also because its end may have made a generation void
      break;
    case ProbeResult::Kind::refused: set_status(member, Absence::Kind::unreachable, now); break;
    case ProbeResult::Kind::silent: set_status(member, Absence::Kind::silent, now); break;
  }
}

void Recovery::learn(const Generation& accepted) {
  if (accepted.number < self_.accepted.number || accepted.id == self_.accepted.id) return;
  if (std::ranges::find(learned_, accepted.id, &Generation::id) != learned_.end()) return;
  learned_.push_back(accepted);
  update_accepted();
}

void Recovery::update_accepted() {
  const auto is_known_void = [this](const Generation& one) {
    return std::ranges::find(self_.void_ids, one.id) != self_.void_ids.end();
  };
  const Generation* newest = &initially_accepted_;
  for (const Generation& one : learned_) {
    if (is_known_void(one)) continue;
    if (is_void(one, ended_with_)) {
      self_.void_ids.push_back(one.id);
    } else if (one.number > newest->number || (one.number == newest->number && is_known_void(*newest))) {
      newest = &one;
    }
  }
  if (newest->id == self_.accepted.id) return;
  self_.accepted = *newest;
  following_.reset();
}

void Recovery::learn_void(const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    if (std::ranges::find(self_.void_ids, id) == self_.void_ids.end()) self_.void_ids.push_back(id);
  }
  update_accepted();
}

void Recovery::on_follow(const Member& member, const Followed& followed, TimePoint now) {
  if (followed.lost) {
    // Ended or silent: the next probe finds out.
    status_of(member).kind = Absence::Kind::unknown;
    following_.reset();
    return;
  }
  if (!followed.answer) {
    // A decision that includes this process comes with an answer, which has not arrived yet.
    if (followed.accepted.rank_of(self_.member.id) < 0) learn(followed.accepted);
    return;
  }
  switch (followed.answer->kind) {
    case Answer::Kind::join: end(Action::Kind::join, *followed.answer, false); break;
    case Answer::Kind::give_up: end(Action::Kind::give_up, *followed.answer, false); break;
    case Answer::Kind::finished: end(Action::Kind::finished, *followed.answer, false); break;
    case Answer::Kind::again:
      for (auto& [id, status] : statuses_) {
        const bool may_answer = status.kind == Absence::Kind::silent || status.kind == Absence::Kind::unreachable;
        if (may_answer) status.kind = Absence::Kind::unknown;
      }
      set_status(member, Absence::Kind::silent, now);
      following_.reset();
      learn_void(followed.answer->void_ids);
      learn(followed.answer->generation);  // otherwise two processes that follow a third could send this one in circles
      break;
  }
}

void Recovery::on_registrations(const std::vector<Registration>& registrations, TimePoint now) {
  registrations_ = registrations;
  collected_ = true;
  for (const Registration& one : registrations) {
    set_status(one.member, Absence::Kind::alive, now);
    learn_void(one.void_ids);
    learn(one.accepted);
  }
}

void Recovery::on_roster(const Generation& roster, bool finished, TimePoint) {
  if (finished) {
    end(Action::Kind::finished, {.kind = Answer::Kind::finished, .reason = "the job has ended"}, false);
    return;
  }
  learn(roster);
}

Action Recovery::end(Action::Kind kind, Answer answer, bool leads) {
  end_ = Action{.kind = kind, .answer = std::move(answer), .leads = leads};
  return *end_;
}

}  // namespace lockstep::membership
