#include "elastic/recovery.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::elastic {
namespace {

using std::chrono::milliseconds;

// How often to look again at a door that was silent, and at that of a member that is missing.
constexpr Duration kLookAgain = milliseconds(500);
constexpr Duration kLookAtMissing = milliseconds(100);
constexpr Duration kAttendPause = milliseconds(5);
constexpr Duration kRefreshPause = milliseconds(100);

}  // namespace

const char* to_string(Action::Kind kind) {
  constexpr const char* kNames[] = {"look", "follow", "attend", "refresh", "tell", "join", "give_up", "finished"};
  return kNames[static_cast<int>(kind)];
}

Recovery::Recovery(Registration self, Policy policy, TimePoint in_touch, TimePoint now,
                   std::function<std::string()> fresh_id)
    : self_(std::move(self)), policy_(policy), in_touch_(in_touch), started_(now), fresh_id_(std::move(fresh_id)) {}

Action Recovery::next(TimePoint now) {
  if (end_) return *end_;
  return following_ ? follow(now) : look_or_lead(now);
}

// Somebody before the one who is followed may answer again: then that one leads.
Action Recovery::follow(TimePoint now) {
  for (const Member& member : self_.accepted.members) {
    if (member.id == following_->id || member.id == self_.member.id) break;
    if (wants_look(member, now, kLookAgain)) return {.kind = Action::Kind::look, .member = member};
    if (door(member).kind != Absence::Kind::alive) continue;
    following_.reset();
    return look_or_lead(now);
  }
  return {.kind = Action::Kind::follow, .member = *following_};
}

Action Recovery::look_or_lead(TimePoint now) {
  for (const Member& member : self_.accepted.members) {
    if (member.id == self_.member.id) return lead(now);
    if (wants_look(member, now, kLookAgain)) return {.kind = Action::Kind::look, .member = member};
    if (door(member).kind != Absence::Kind::alive) continue;
    if (leading_) {  // it was silent, and others may have come here meanwhile
      leading_ = false;
      return {.kind = Action::Kind::tell, .answer = {.kind = Answer::Kind::again, .reason = "another one leads"}};
    }
    following_ = member;
    waits_for_ = fmt::format("the answer of the leader ({})", member.describe());
    return {.kind = Action::Kind::follow, .member = member};
  }
  // A newcomer never leads: it has nothing that the others would want.
  waits_for_ = "any member of the job";
  if (now - started_ >= policy_.quorum_timeout) {
    return end(Action::Kind::give_up,
               {.kind = Answer::Kind::give_up,
                .reason = fmt::format("none of the {} members of the job that are known could be reached",
                                      self_.accepted.members.size())},
               false);
  }
  return {.kind = Action::Kind::refresh, .pause = kRefreshPause};
}

Action Recovery::lead(TimePoint now) {
  if (!leading_) {
    leading_ = true;
    attended_ = false;
    here_.clear();
  }
  if (!attended_) return {.kind = Action::Kind::attend, .pause = here_.empty() ? Duration{} : kAttendPause};
  attended_ = false;

  Attendance attendance{.here = here_, .absent = {}, .elapsed = now - started_};
  attendance.here.insert(attendance.here.begin(), self_);
  for (const auto& [id, door] : doors_) attendance.absent[id] = {.kind = door.kind, .lasts = now - door.since};
  Verdict verdict = decide(attendance, policy_, fresh_id_());
  waits_for_ = verdict.reason;
  switch (verdict.kind) {
    case Verdict::Kind::form:
      // More may be here than there is room for.
      if (verdict.answer.generation.rank_of(self_.member.id) >= 0) {
        return end(Action::Kind::join, std::move(verdict.answer), true);
      }
      break;
    case Verdict::Kind::give_up: return end(Action::Kind::give_up, std::move(verdict.answer), true);
    case Verdict::Kind::wait: break;
  }
  if (auto look = look_at_absent(now)) return *look;
  return {.kind = Action::Kind::attend, .pause = kAttendPause};
}

// Whoever is here may count on members of a generation of which this process knows nothing.
std::optional<Action> Recovery::look_at_absent(TimePoint now) {
  std::set<std::string> settled = {self_.member.id};
  for (const Registration& one : here_) settled.insert(one.member.id);
  std::vector<const Generation*> generations = {&self_.accepted, &self_.established};
  for (const Registration& one : here_) generations.insert(generations.end(), {&one.accepted, &one.established});
  for (const Generation* generation : generations) {
    for (const Member& member : generation->members) {
      if (settled.insert(member.id).second && wants_look(member, now, kLookAtMissing)) {
        return Action{.kind = Action::Kind::look, .member = member};
      }
    }
  }
  return std::nullopt;
}

bool Recovery::wants_look(const Member& member, TimePoint now, Duration interval) const {
  const auto found = doors_.find(member.id);
  if (found == doors_.end() || found->second.kind == Absence::Kind::unknown) return true;
  // Whoever leads looks at living ones again too: they may end. Whoever does not follows them.
  const bool may_change = found->second.kind == Absence::Kind::silent ||
                          (found->second.kind == Absence::Kind::alive && interval == kLookAtMissing);
  return may_change && now - found->second.looked >= interval;
}

void Recovery::set_door(const Member& member, Absence::Kind kind, TimePoint now) {
  RankStore& one = door(member);
  if (one.kind != kind) one.since = now;
  one.kind = kind;
  one.looked = now;
}

Absence::Kind Recovery::how_ended(const Member& member, TimePoint now) {
  const RankStore& one = door(member);
  if (one.kind == Absence::Kind::ended) return one.kind;
  const bool same_site = !member.site.empty() && member.site == self_.member.site;
  const bool recent = now - std::max(in_touch_, one.in_touch) < policy_.silent_timeout * 4 / 5;
  return same_site || recent ? Absence::Kind::ended : Absence::Kind::vanished;
}

void Recovery::on_look(const Member& member, const Look& look, TimePoint now) {
  switch (look.kind) {
    case Look::Kind::refused:
      set_door(member, how_ended(member, now), now);
      learn(look.roster);
      break;
    case Look::Kind::silent: set_door(member, Absence::Kind::silent, now); break;
    case Look::Kind::answered:
      set_door(member, Absence::Kind::alive, now);
      if (look.accepted.id == self_.accepted.id) door(member).in_touch = look.asked;
      learn(look.accepted);
      break;
  }
}

void Recovery::learn(const Generation& accepted) {
  if (accepted.number <= self_.accepted.number) return;
  self_.accepted = accepted;
  following_.reset();
  for (auto& [id, door] : doors_) door.in_touch = {};
  if (!is_newcomer()) return;
  self_.step = -1;
  self_.established = {};
}

void Recovery::on_follow(const Member& member, const Followed& followed, TimePoint now) {
  if (followed.lost) {
    // Ended or silent: a look will tell.
    door(member).kind = Absence::Kind::unknown;
    following_.reset();
    return;
  }
  if (!followed.answer) {
    if (followed.accepted.id == self_.accepted.id) door(member).in_touch = followed.asked;
    // A decision that includes this process comes with an answer, which is only not there yet.
    if (followed.accepted.rank_of(self_.member.id) < 0) learn(followed.accepted);
    return;
  }
  switch (followed.answer->kind) {
    case Answer::Kind::join: end(Action::Kind::join, *followed.answer, false); break;
    case Answer::Kind::give_up: end(Action::Kind::give_up, *followed.answer, false); break;
    case Answer::Kind::finished: end(Action::Kind::finished, *followed.answer, false); break;
    case Answer::Kind::again:
      for (auto& [id, door] : doors_) {
        if (door.kind == Absence::Kind::silent) door.kind = Absence::Kind::unknown;
      }
      set_door(member, Absence::Kind::silent, now);
      following_.reset();
      break;
  }
}

void Recovery::on_attendance(const std::vector<Registration>& here, TimePoint now) {
  here_ = here;
  attended_ = true;
  for (const Registration& one : here) {
    set_door(one.member, Absence::Kind::alive, now);
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

}  // namespace lockstep::elastic
