#include "membership/recovery.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::membership {
namespace {

using std::chrono::milliseconds;

// How often to probe a silent member store again, and that of a missing member.
constexpr Duration kReprobeInterval = milliseconds(500);
constexpr Duration kMissingProbeInterval = milliseconds(100);
constexpr Duration kCollectPause = milliseconds(5);
constexpr Duration kRefreshPause = milliseconds(100);

}  // namespace

const char* to_string(Action::Kind kind) {
  constexpr const char* kNames[] = {"probe", "follow", "collect", "refresh", "answer", "join", "give_up", "finished"};
  return kNames[static_cast<int>(kind)];
}

Recovery::Recovery(Registration self, Policy policy, TimePoint now, std::function<std::string()> fresh_id)
    : self_(std::move(self)), policy_(policy), started_(now), fresh_id_(std::move(fresh_id)) {}

Action Recovery::next(TimePoint now) {
  if (end_) return *end_;
  return following_ ? follow(now) : probe_or_lead(now);
}

// A member before the followed one may answer again; then that one leads.
Action Recovery::follow(TimePoint now) {
  for (const Member& member : self_.accepted.members) {
    if (member.id == following_->id || member.id == self_.member.id) break;
    if (needs_probe(member, now, kReprobeInterval)) return {.kind = Action::Kind::probe, .member = member};
    if (status_of(member).kind != Absence::Kind::alive) continue;
    following_.reset();
    return probe_or_lead(now);
  }
  return {.kind = Action::Kind::follow, .member = *following_};
}

Action Recovery::probe_or_lead(TimePoint now) {
  for (const Member& member : self_.accepted.members) {
    if (member.id == self_.member.id) return lead(now);
    if (needs_probe(member, now, kReprobeInterval)) return {.kind = Action::Kind::probe, .member = member};
    if (status_of(member).kind != Absence::Kind::alive) continue;
    if (leading_) {  // it was silent, and others may have registered here meanwhile
      leading_ = false;
      return {.kind = Action::Kind::answer, .answer = {.kind = Answer::Kind::again, .reason = "another process leads"}};
    }
    following_ = member;
    waits_for_ = fmt::format("the answer of the leader ({})", member.describe());
    return {.kind = Action::Kind::follow, .member = member};
  }
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
  if (!collected_) return {.kind = Action::Kind::collect, .pause = registrations_.empty() ? Duration{} : kCollectPause};
  collected_ = false;

  MembershipView view{.present = registrations_, .elapsed = now - started_, .witness = witness_};
  view.present.insert(view.present.begin(), self_);
  for (const auto& [id, status] : statuses_) view.absent[id] = {.kind = status.kind, .lasts = now - status.since};
  for (const auto& [id, generation] : attested_) view.attested.push_back(generation);
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
  return {.kind = Action::Kind::collect, .pause = kCollectPause};
}

// Registered processes and the witness may know generations with members that this process does not know.
std::optional<Action> Recovery::probe_absent(TimePoint now) {
  std::set<std::string> settled = {self_.member.id};
  for (const Registration& one : registrations_) settled.insert(one.member.id);
  std::vector<const Generation*> generations = {&self_.accepted, &self_.established};
  for (const Registration& one : registrations_) {
    generations.insert(generations.end(), {&one.accepted, &one.established});
  }
  if (witness_) {
    for (const auto& [name, vote] : witness_->votes) generations.push_back(&vote);
  }
  for (const Generation* generation : generations) {
    for (const Member& member : generation->members) {
      if (settled.insert(member.id).second && needs_probe(member, now, kMissingProbeInterval)) {
        return Action{.kind = Action::Kind::probe, .member = member};
      }
    }
  }
  return std::nullopt;
}

bool Recovery::needs_probe(const Member& member, TimePoint now, Duration interval) const {
  const auto found = statuses_.find(member.id);
  if (found == statuses_.end() || found->second.kind == Absence::Kind::unknown) return true;
  // A leader also probes living members again, because they may end. Other processes follow them instead.
  const bool may_change = found->second.kind == Absence::Kind::silent ||
                          found->second.kind == Absence::Kind::unreachable ||
                          (found->second.kind == Absence::Kind::alive && interval == kMissingProbeInterval);
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
      learn(result.accepted);
      break;
    case ProbeResult::Kind::ended:
      set_status(member, Absence::Kind::ended, now);
      attested_[result.accepted.id] = result.accepted;
      ended_with_.emplace(member.id, result.accepted);
      learn(result.accepted);
      break;
    case ProbeResult::Kind::refused: set_status(member, Absence::Kind::unreachable, now); break;
    case ProbeResult::Kind::silent: set_status(member, Absence::Kind::silent, now); break;
  }
}

void Recovery::learn(const Generation& accepted) {
  if (accepted.number <= self_.accepted.number) return;
  self_.accepted = accepted;
  following_.reset();
  if (!is_newcomer()) return;
  self_.step = -1;
  self_.established = {};
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
      break;
  }
}

void Recovery::on_registrations(const std::vector<Registration>& registrations, TimePoint now) {
  registrations_ = registrations;
  collected_ = true;
  for (const Registration& one : registrations) {
    set_status(one.member, Absence::Kind::alive, now);
    if (one.accepted.number > self_.accepted.number) learn(one.accepted);
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
