// How one process gets from a failure (or from its start, as a newcomer) into the next generation: whom to ask, whom
// to follow, when to lead. No clock, no network: next() says what to do, the caller does it and reports with on_*(),
// so that a simulation can drive it through any history. Used by one thread.
//
// The first member that lives leads. A process looks at the doors of all members before it, in order of rank; it
// follows the first one that answers (registers there and waits for its answer), or leads itself where none does.
// The leader collects registrations at its own door until decide() has a verdict. A process that finds a newer
// generation without itself has been left behind, and asks to be let in as a newcomer; its own state no longer counts.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "elastic/decision.h"
#include "elastic/records.h"

namespace lockstep::elastic {

struct Action {
  enum class Kind : std::uint8_t {
    look,      // at the door of `member`; report with on_look. A registration elsewhere stays
    follow,    // wait a little for the answer of `member`, at whose door registration() is to lie, and send those who
               // are registered here to look again; report with on_follow
    attend,    // see who is registered at the own door; on_attendance
    refresh,   // nobody known can be reached: look for a newer list of members; on_roster
    tell,      // give `answer` to all who are registered here, and call next() again
    join,      // the end: `answer` says into which generation; leads: tell it to its members first
    give_up,   // the end: `answer.reason`; leads: tell it to all who are registered here first
    finished,  // the end: the job is done
  };
  Kind kind = Kind::attend;
  Member member = {};
  Answer answer = {};
  bool leads = false;
  Duration pause{};  // to be waited before it is done
};

// "look", "follow", ...
const char* to_string(Action::Kind kind);

// What a look at a door showed.
struct Look {
  enum class Kind : std::uint8_t { answered, refused, silent };
  Kind kind = Kind::silent;
  TimePoint asked = {};      // when the look began
  Generation accepted = {};  // answered: the newest decision that its process knows
  Generation roster = {};    // refused, and of this process' site: the site's roster, read after that
};

class Recovery {
 public:
  // `self.accepted` lists whom to ask; a process that is not in it is a newcomer. `in_touch`: a time at which all of
  // them were members, and had not left this process behind. `fresh_id` makes ids.
  Recovery(Registration self, Policy policy, TimePoint in_touch, TimePoint now, std::function<std::string()> fresh_id);

  Action next(TimePoint now);
  void on_look(const Member& member, const Look& look, TimePoint now);
  struct Followed {
    TimePoint asked = {};
    bool lost = false;                            // its door no longer answers, or its process has ended
    std::optional<Answer> answer = std::nullopt;  // nothing: not yet
    Generation accepted = {};                     // the newest decision that its process knows
  };
  void on_follow(const Member& member, const Followed& followed, TimePoint now);
  // `here` without the process itself.
  void on_attendance(const std::vector<Registration>& here, TimePoint now);
  void on_roster(const Generation& roster, bool finished, TimePoint now);

  // What to register with whoever is followed. Changes when a process learns that it was left behind.
  const Registration& registration() const { return self_; }
  bool is_newcomer() const { return self_.accepted.rank_of(self_.member.id) < 0; }
  // For people: what it waits for.
  const std::string& waits_for() const { return waits_for_; }

 private:
  struct RankStore {
    Absence::Kind kind = Absence::Kind::unknown;
    TimePoint since{};  // when it became so
    TimePoint looked{};
    TimePoint in_touch{};  // when it was a member, if it was asked
  };

  Action follow(TimePoint now);
  Action look_or_lead(TimePoint now);
  Action lead(TimePoint now);
  std::optional<Action> look_at_absent(TimePoint now);
  bool wants_look(const Member& member, TimePoint now, Duration interval) const;
  RankStore& door(const Member& member) { return doors_[member.id]; }
  Absence::Kind how_ended(const Member& member, TimePoint now);
  void set_door(const Member& member, Absence::Kind kind, TimePoint now);
  // Learns of a decision that somebody else knows.
  void learn(const Generation& accepted);
  Action end(Action::Kind kind, Answer answer, bool leads);

  Registration self_;
  const Policy policy_;
  const TimePoint in_touch_;
  const TimePoint started_;
  const std::function<std::string()> fresh_id_;
  std::map<std::string, RankStore> doors_;
  std::vector<Registration> here_;
  std::optional<Member> following_;
  bool leading_ = false;
  bool attended_ = false;  // in this turn of leading: looks and attendance take turns
  std::optional<Action> end_;
  std::string waits_for_;
};

}  // namespace lockstep::elastic
