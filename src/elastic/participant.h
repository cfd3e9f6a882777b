// One process' part in an elastic job: meets the others, learns when the group has to be formed anew, and forms it.
//
// Threads: the training thread calls everything; a thread of its own (the porter) looks every 50 ms whether newcomers
// wait at this process' door. The door itself is served by its store's thread, also while the training computes.
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

#include "elastic/rank_store.h"
#include "elastic/recovery.h"
#include "lockstep/base/secret.h"
#include "lockstep/communicator/communicator.h"
#include "lockstep/rendezvous/init_options.h"

namespace lockstep::elastic {

struct ParticipantOptions {
  // How the first generation meets; the group options hold for every generation.
  InitOptions init = {};
  Policy policy = {};
  std::string roster = {};  // the file; empty: none
  // Asks the members that the roster names to be let in, where there is a roster with members.
  bool newcomer = false;
  // How long a decided generation may take to become a group.
  std::chrono::milliseconds forming{std::chrono::seconds(10)};

  // From LOCKSTEP_MIN_RANKS, LOCKSTEP_MAX_RANKS, LOCKSTEP_ROSTER, LOCKSTEP_NEWCOMER, where they are set; the rest as
  // in `base`. Throws Error for what makes no sense.
  static ParticipantOptions from_environment(ParticipantOptions base);
};

class Participant {
 public:
  // Opens the door. Throws Error.
  explicit Participant(ParticipantOptions options);
  ~Participant();
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

  // One generation.
  struct RankStart {
    std::shared_ptr<Communicator> group;
    std::int64_t generation = 0;
    std::vector<Member> members = {};  // by rank
    int source = 0;                    // the rank whose state counts
    bool transfer = false;             // not all have it
    bool has_state = true;  // this process' state counts until then; false for newcomers, and who was left behind
  };
  // Blocks until this process is part of the next generation; the group of the last one must be gone. `step`: how
  // many steps the state of this process has; -1: it has none (a newcomer, or a state that is half overwritten).
  // Nothing: the job has finished without this process. Throws Error (unavailable) when the job has to end, with the
  // reason: too few ranks for too long, no quorum, nobody left who has the state.
  std::optional<RankStart> next_generation(std::int64_t step);

  // True if somebody waits at the door, and there is room. Cheap; any thread. Only rank 0's answer counts.
  bool newcomers_wait() const { return newcomers_wait_.load(std::memory_order_relaxed); }  // set by the porter
  // To be called before every operation in which all ranks of the generation take part and that none can complete
  // before all have begun it: this is how a process knows that the others have not gone on without it.
  void begin_round();
  // To be called when that operation has succeeded.
  void end_round();

  // The job is done: whoever still waits at the door is told so.
  void finish();
  const Member& self() const { return self_; }
  // It came to a job that runs already; what it brings along does not count.
  bool is_newcomer() const { return newcomer_; }

 private:
  std::optional<RankStart> first_generation(std::int64_t step);
  std::optional<RankStart> try_first_generation(Store& store, const Deadline& deadline);
  // Keeps what was decided, where others can see it; before this process acts on it.
  void accept(const Generation& generation);
  void establish(const RankStart& start);
  std::optional<RankStart> recover(std::int64_t& step);
  std::optional<RankStart> form(const Answer& answer, bool leads);
  void tell(const Answer& answer, const std::vector<RankStore::Visitor>& visitors);
  Look look(const Member& member);
  Recovery::Followed follow(const Member& member, const Registration& registration);
  void watch_door();

  const ParticipantOptions options_;
  const Secret secret_;
  Member self_;
  std::unique_ptr<RankStore> door_;
  std::shared_ptr<Store> meeting_store_;  // of the first generation
  int first_rank_ = 0;
  int first_size_ = 1;
  bool newcomer_ = false;
  bool job_has_ended_ = false;  // already when this process started

  // Owned by the training thread.
  Generation accepted_, established_;
  TimePoint in_touch_{}, last_round_{}, this_round_{};
  std::unique_ptr<RegistrationClient> visit_;
  std::vector<RankStore::Visitor> attended_;  // the visitors that the recovery was told of last

  std::atomic<bool> newcomers_wait_ = false;
  std::atomic<bool> door_is_watched_ = false;  // by the porter: true while this process is rank 0 and there is room
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread porter_;
};

}  // namespace lockstep::elastic
