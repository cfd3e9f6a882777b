// What a node does while it is the coordinator: reads the announcements in its store, asks for the ends of absent
// nodes, and publishes the job state. Used by one thread. Calls take as long as the store's answers, and up to 300 ms
// for a node that does not answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "launch/meeting/coordinator.h"
#include "lockstep/base/secret.h"
#include "lockstep/store/store.h"

namespace lockstep::launch {

class CoordinatorRole {
 public:
  struct Options {
    NodeRecord self;
    JobConfig job;
    CoordinatorOptions coordinator = {};
    Secret secret = {};
    std::string witness = {};  // "host:port"; empty: none
    std::chrono::milliseconds rpc_timeout{8'000};
  };
  // `known`: as for Coordinator. `store`: a connection to this node's own store.
  CoordinatorRole(const Options& options, JobState known, std::shared_ptr<Store> store);

  const Coordinator& coordinator() const { return coordinator_; }
  const JobState& job_state() const { return coordinator_.job_state(); }
  // Reads, decides and publishes.
  Status update();
  // Removes the job state, so that the nodes search for another coordinator.
  void step_down();

 private:
  Deadline deadline() const { return Deadline::after(options_.rpc_timeout); }
  void ask_witness();
  Status collect_roster();
  Status publish();

  const Options options_;
  const std::shared_ptr<Store> store_;
  Coordinator coordinator_;
  std::uint64_t version_ = 0;  // of the published job state
  std::uint64_t beat_ = 0;
  std::optional<Coordinator::Clock::time_point> witness_asked_at_;
  std::string written_state_;
  std::map<std::string, std::string> written_refusals_;
};

}  // namespace lockstep::launch
