// An elastic job in simulated time: processes that die, stop and continue, links that are cut and healed, newcomers.
// Every process runs a real Recovery; the network and the group are simulated here. A seed determines the history.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "elastic/recovery.h"

namespace lockstep::elastic {

class SimulatedJob {
 public:
  SimulatedJob(int ranks, int hosts, unsigned seed, const Policy& policy);

  // Lets time pass.
  void run_for(Duration time);
  void kill(int process);
  void stop(int process) { processes_.at(index(process)).stopped = true; }
  void resume(int process) { processes_.at(index(process)).stopped = false; }
  void set_link(int host, bool up) { host_is_cut_.at(index(host)) = !up; }
  void add_newcomer(int host);
  void heal();
  // In the next step some ranks complete it, and then one of them dies.
  void kill_in_next_step() { kill_in_step_ = true; }

  int processes() const { return static_cast<int>(processes_.size()); }
  int living() const;
  int hosts() const { return static_cast<int>(host_is_cut_.size()); }
  // How many members the generation that makes progress has; 0 if none does.
  int size_of_live_generation() const;
  std::int64_t committed_steps() const { return committed_; }
  int gave_up() const { return gave_up_; }
  // What must never happen, and did.
  const std::vector<std::string>& violations() const { return violations_; }
  std::string describe() const;

 private:
  enum class Mode : std::uint8_t { training, recovering, forming, ended };
  struct Kept {  // a registration in a rank store
    Registration registration;
    bool connected = true;
    TimePoint expires = TimePoint::max();  // of a connection whose end the peer could not detect
  };
  struct Process {
    Member member;
    int host = 0;
    Mode mode = Mode::ended;
    bool stopped = false;
    Generation accepted, established, forming;
    Answer joining;
    std::int64_t step = -1;
    std::uint64_t history = 0;  // of the state: which generations made its steps
    std::optional<Recovery> recovery;
    std::optional<Action> action;   // begun, complete at `ready`
    std::optional<int> registered;  // with which process
    TimePoint began{}, ready{};
    TimePoint forming_since{};
    TimePoint stepped{}, in_touch{};            // when the last step was made, and the one before it
    TimePoint silent_since = TimePoint::max();  // of a peer
    TimePoint synced = TimePoint::max();        // when the state has been transferred
    std::map<int, Kept> registrations;          // in its rank store, by process
    std::map<int, Answer> answers;              // to them
  };

  static std::size_t index(int value) { return static_cast<std::size_t>(value); }
  int process_of(const Member& member) const { return std::stoi(member.id); }
  bool reachable(int from, int to) const;
  bool gone(const Process& process) const { return process.mode == Mode::ended; }
  void advance(int process);
  void recover(Process& process);
  void perform(int self, Process& process);
  void begin(int self, Process& process, const Action& action);
  void follow(int self, Process& process, const Member& member);
  void unregister(int self, Process& process);
  void join(int self, Process& process, const Action& action);
  void form(Process& process);
  void train(Process& process);
  void step_if_complete(Process& leader);
  bool all_in_step(const Generation& generation) const;
  void violate(const std::string& what);

  std::mt19937 random_;
  const Policy policy_;
  TimePoint now_{};
  std::vector<Process> processes_;
  std::vector<bool> host_is_cut_;
  std::vector<Generation> rosters_;  // by host
  std::set<std::string> complete_;   // generations that all members joined
  int fresh_ids_ = 0;
  bool kill_in_step_ = false;
  std::int64_t committed_ = 0;  // steps that all members of a generation completed
  std::int64_t newest_ = 0;     // the number of the newest generation that made a step
  std::string newest_id_;
  int gave_up_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace lockstep::elastic
