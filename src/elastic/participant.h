// One process of an elastic job: finds the other processes and forms the group of each generation.
//
// Threads: the training thread makes all calls. An internal thread, the newcomer watcher, checks every 50 ms whether
// newcomers are registered in this process' member store. The store's own thread serves it, even while training
// computes.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/secret.h"
#include "lockstep/communicator/communicator.h"
#include "lockstep/rendezvous/init_options.h"
#include "membership/member_store.h"
#include "membership/recovery.h"

namespace lockstep::elastic {

using membership::Answer;
using membership::Generation;
using membership::Member;
using membership::MemberStore;
using membership::Policy;
using membership::ProbeResult;
using membership::Recovery;
using membership::Registration;
using membership::RegistrationClient;

struct ParticipantOptions {
  // How the processes of the first generation find each other; the group options apply to every generation.
  InitOptions init = {};
  Policy policy = {};
  std::string roster = {};    // the path of the roster file; empty: none
  std::string attester = {};  // where the launcher attests the ends of this site's processes; empty: nowhere
  std::string witness = {};   // "host:port" (membership/witness.h); empty: none
  // Asks the members in the roster to join them, if there is a roster with members.
  bool newcomer = false;
  // How long it may take to form the group of a decided generation.
  std::chrono::milliseconds forming{std::chrono::seconds(10)};

  // From LOCKSTEP_MIN_RANKS, LOCKSTEP_MAX_RANKS, LOCKSTEP_ROSTER, LOCKSTEP_ATTESTER, LOCKSTEP_WITNESS and
  // LOCKSTEP_NEWCOMER if they are set; the rest as in `base`. Throws Error for invalid values.
  static ParticipantOptions from_environment(ParticipantOptions base);
};

class Participant {
 public:
  // Opens the member store. Throws Error.
  explicit Participant(ParticipantOptions options);
  ~Participant();
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

  // The start of this process as a rank of one generation.
  struct RankStart {
    std::shared_ptr<Communicator> group;
    std::int64_t generation = 0;
    std::string job = {};              // the same in all generations of one job
    std::vector<Member> members = {};  // by rank
    int source = 0;                    // the rank whose state all continue from
    bool transfer = false;             // some ranks have another state
    bool has_state = true;             // false for newcomers, and if others have continued without this process
  };
  // Blocks until this process is a member of the next generation; the previous group must have been destroyed. `step`:
  // the number of steps in this process' state; -1: it has no state (a newcomer, or a state that is partly
  // overwritten). Returns nothing if the job has finished without this process. Throws Error (unavailable) if the job
  // has to end, with the reason: too few ranks for too long, no quorum, or no process left that has the state.
  std::optional<RankStart> next_generation(std::int64_t step);

  // True if newcomers are waiting and there is room for them. Cheap; any thread. Only meaningful on rank 0.
  bool newcomers_wait() const { return newcomers_wait_.load(std::memory_order_relaxed); }
  // The job is done; reports this to all newcomers that are still waiting.
  void finish();
  const Member& self() const { return self_; }
  // True if this process joins a job that is already running; its own state is not used.
  bool is_newcomer() const { return newcomer_; }

 private:
  std::optional<RankStart> first_generation(std::int64_t step);
  std::optional<RankStart> try_first_generation(Store& store, const Deadline& deadline);
  // Writes the decision into the site's roster and shows it to all who probe; must precede acting on it. False: this
  // process or the roster has a newer generation, or another one with this number, which this process knows from then
  // on.
  bool accept(const Generation& generation);
  // Ends processes of this site that the new generation has left behind: they share memory with its members.
  void end_left_behind(const Generation& previous, const Generation& next);
  void establish(const RankStart& start);
  std::optional<RankStart> recover(std::int64_t step);
  // A process that cannot accept the generation that it asked for would end it for all of its members.
  void await_writable_roster() const;
  std::optional<RankStart> form(const Answer& answer, bool leads);
  std::optional<membership::WitnessView> find_witness(std::chrono::milliseconds timeout) const;
  // False: the witness does not vote for the decision.
  bool collect_votes(const membership::Action& action, const std::optional<membership::WitnessView>& witness) const;
  // True if the generation has a witness that is lost, or has none although one answers.
  bool has_other_witness(const std::string& established) const;
  void send_answer(const Answer& answer, const std::vector<MemberStore::Registrant>& registrants);
  ProbeResult probe(const Member& member);
  // All at the same time, each in a thread of its own.
  std::vector<ProbeResult> probe(const std::vector<Member>& members);
  Recovery::Followed follow(const Member& member, const Registration& registration);
  void watch_for_newcomers();

  const ParticipantOptions options_;
  const Secret secret_;
  Member self_;
  std::unique_ptr<MemberStore> member_store_;
  std::shared_ptr<Store> meeting_store_;  // of the first generation
  int first_rank_ = 0;
  int first_size_ = 1;
  bool newcomer_ = false;
  bool job_has_ended_ = false;  // already when this process started

  // Owned by the training thread.
  Generation accepted_, established_;
  std::vector<std::string> void_ids_;  // the generations that the last recovery knew to be void
  bool first_attempt_ = true;          // at the first generation
  std::unique_ptr<RegistrationClient> registration_;
  std::vector<MemberStore::Registrant> registrants_;  // those reported to the recovery last

  std::atomic<bool> newcomers_wait_ = false;     // set by the newcomer watcher
  std::atomic<bool> accepts_newcomers_ = false;  // true while this process is rank 0
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;            // guarded by mutex_
  std::string established_witness_;  // of the present generation; guarded by mutex_
  bool has_room_ = false;            // for newcomers; guarded by mutex_
  std::thread newcomer_watcher_;
};

}  // namespace lockstep::elastic
