// The faults that the chaos test injects into a job. Each is chosen by a seed; so is its victim, and how long it lasts.
#pragma once

#include <random>
#include <string>

#include "chaos/chaos_job.h"

namespace lockstep::testing {

class Nemesis {
 public:
  Nemesis(ChaosJob& job, HostSet& hosts, unsigned seed) : job_(job), hosts_(hosts), random_(seed) {}

  // Injects one fault, ends it if it has an end, and returns a description; one that starts with "nothing" if this
  // fault cannot be injected now or here.
  std::string disturb();
  // From 0 to `count` - 1.
  int any(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }

 private:
  std::string kill_rank();
  std::string stop_rank();
  std::string cut_link();
  std::string with_firewall(HostSet::Firewall firewall, const char* what);
  std::string lose_packets();
  std::string stop_launcher();
  std::string kill_twice();
  std::string kill_launcher();
  std::string lose_power();
  std::string freeze_host();
  std::string starve();
  std::string fill_disk();
  std::string write_protect_disk();
  // Arms a failpoint and kills a rank, so that the others pass through a recovery.
  std::string hit_failpoint();

  // A rank process, unless too few run.
  std::optional<pid_t> victim(std::size_t at_least);
  int short_or_long(int long_ms);

  ChaosJob& job_;
  HostSet& hosts_;
  std::mt19937 random_;
};

}  // namespace lockstep::testing
