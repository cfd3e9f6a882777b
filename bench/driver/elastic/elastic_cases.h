// The cases of `lockstep bench elastic`: what is started, and which processes are killed.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "bench/driver/elastic/elastic.h"
#include "bench/driver/elastic/elastic_job.h"
#include "bench/driver/network.h"

namespace lockstep::bench {

// What the cases share.
struct ElasticSetup {
  const ElasticBenchOptions& options;
  std::string lockstep;  // this program
  std::string worker;
  std::string python = {};                  // with PyTorch; empty: none
  const VirtualNetwork* network = nullptr;  // null: no hosts
};

struct ElasticCase {
  std::string name;    // "rank"
  std::string title;   // human-readable: "a rank"
  std::string engine;  // "lockstep", "torch"
  int ranks = 0;
  std::set<int> victims = {};
  bool kills_first_launcher = false;
  bool is_replaced = true;
  // The kill follows after this many steps, plus a random number of up to `steps_more`.
  int steps_before = 6;
  int steps_more = 1;
  // The launchers of a job whose ranks log to this folder.
  std::function<std::vector<Launcher>(const std::string& folder)> launchers = {};
};

inline constexpr const char* kCommitCase = "commit";

// All cases that the setup allows, in the order of the table, except kCommitCase.
std::vector<ElasticCase> elastic_cases(const ElasticSetup& setup);
// The job in which commit() is timed.
Launcher commit_launcher(const ElasticSetup& setup, const std::string& folder);

}  // namespace lockstep::bench
