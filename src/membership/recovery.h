// How one process gets from a failure (or from its start, as a newcomer) into the next generation: which members to
// probe, which one to follow, when to lead. A state machine without clock and network: next() returns the next action,
// the caller performs it and reports with on_*(), so that a simulation can drive it through any history. Used by one
// thread.
//
// The first living member leads. A process probes the member stores of all members before it, in rank order. It follows
// the first one that answers (registers there and waits for the answer), or leads if none does. The leader collects
// registrations in its own member store until decide() decides. A process that finds a newer generation without itself
// has been left behind and asks to join as a newcomer. It registers its established generation and its step all the
// same: the newer generation may be void, and then its state counts. The leader decides.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "membership/decision.h"
#include "membership/records.h"

namespace lockstep::membership {

struct Action {
  enum class Kind : std::uint8_t {
    probe,    // the member stores of `members`, all at the same time; report each with on_probe. A registration
              // elsewhere stays
    follow,   // register registration() with `member`, wait briefly for its answer, and answer `again` to the processes
              // that are registered here; report with on_follow
    collect,  // read the registrations in this process' member store; report with on_registrations
    refresh,  // no known member can be reached: read the roster for a newer list of members; report with on_roster
    answer,   // send `answer` to all processes that are registered here, and call next() again
    join,     // final: join the generation in `answer`; if `leads`, send it to its members first
    give_up,  // final: `answer.reason`; if `leads`, send it to all processes that are registered here first
    finished,  // final: the job is done
  };
  Kind kind = Kind::collect;
  Member member = {};
  std::vector<Member> members = {};
  Answer answer = {};
  bool leads = false;
  std::vector<std::string> votes = {};  // join: registers in which the witness must vote for it first, if `leads`
  Duration pause{};                     // to wait before performing the action
};

// "probe", "follow", ...
const char* to_string(Action::Kind kind);

// The result of probing a member.
struct ProbeResult {
  enum class Kind : std::uint8_t { answered, refused, silent, ended };
  Kind kind = Kind::silent;
  // answered: the newest decision that the member knows. ended: what its site had accepted, newest first (attester.h).
  std::vector<Generation> accepted = {};

  Generation newest() const { return accepted.empty() ? Generation{} : accepted.front(); }
};

// Of how many void generations a process knows after a recovery.
inline constexpr std::size_t kKeptVoidIds = 64;

class Recovery {
 public:
  // `self.accepted` lists the members to probe; a process that is not in it is a newcomer. A member of it that did not
  // establish it has left it. `self.void_ids`: those of registration() of the last recovery; the newest ones are kept.
  // `fresh_id` generates ids.
  Recovery(Registration self, Policy policy, TimePoint now, std::function<std::string()> fresh_id);

  Action next(TimePoint now);
  void on_probe(const Member& member, const ProbeResult& result, TimePoint now);
  struct Followed {
    bool lost = false;                            // its member store no longer answers, or the process has ended
    std::optional<Answer> answer = std::nullopt;  // nothing: no answer yet
    Generation accepted = {};                     // the newest decision that it knows
  };
  void on_follow(const Member& member, const Followed& followed, TimePoint now);
  // `registrations` without that of this process.
  void on_registrations(const std::vector<Registration>& registrations, TimePoint now);
  void on_roster(const Generation& roster, bool finished, TimePoint now);
  // What the witness answered; nothing: it did not.
  void on_witness(std::optional<WitnessView> witness) { witness_ = std::move(witness); }
  const std::optional<WitnessView>& witness() const { return witness_; }

  // What to register with the followed process. Changes when this process learns that it was left behind.
  const Registration& registration() const { return self_; }
  // How many generations it has learned of.
  std::size_t known_generations() const { return learned_.size(); }
  bool is_newcomer() const { return self_.accepted.rank_of(self_.member.id) < 0; }
  // Human-readable: what this process waits for.
  const std::string& waits_for() const { return waits_for_; }

 private:
  struct MemberStatus {
    Absence::Kind kind = Absence::Kind::unknown;
    TimePoint since{};  // when it entered this state
    TimePoint probed{};
  };

  Action follow(TimePoint now);
  Action probe_or_lead(TimePoint now);
  Action lead(TimePoint now);
  std::optional<Action> probe_absent(TimePoint now);
  Action probe(std::vector<const Member*> members);
  // Members that did not answer before. Nothing if there are none, or if the last call returned some: between two
  // probes, this process continues to wait for what it waits for.
  std::optional<Action> probe_again(const std::vector<const Member*>& due);
  bool needs_probe(const Member& member, TimePoint now, Duration interval) const;
  bool all_ended_for(Duration duration, TimePoint now) const;
  MemberStatus& status_of(const Member& member) { return statuses_[member.id]; }
  void set_status(const Member& member, Absence::Kind kind, TimePoint now);
  // Takes over a newer decision that another process knows, or another one with the number of its own.
  void learn(const Generation& accepted);
  void learn_void(const std::vector<std::string>& ids);
  // The newest known decision counts that is not void. A process that a void one has left behind is a member again. Its
  // own, if it is void, gives way to another one with the same number.
  void update_accepted();
  Action end(Action::Kind kind, Answer answer, bool leads);

  Registration self_;
  const Generation initially_accepted_;  // without what was learned
  std::vector<Generation> learned_;
  const Policy policy_;
  const TimePoint started_;
  const std::function<std::string()> fresh_id_;
  std::map<std::string, MemberStatus> statuses_;
  std::map<std::string, Attested> attested_;      // by generation id: what the sites of ended members had accepted
  std::map<std::string, Generation> ended_with_;  // the newest of it by member id
  std::vector<Registration> registrations_;
  std::optional<WitnessView> witness_;
  std::optional<Member> following_;
  bool leading_ = false;
  bool probed_again_ = false;
  bool collected_ = false;  // leading: probing and collecting alternate
  std::optional<Action> end_;
  std::string waits_for_;
};

}  // namespace lockstep::membership
