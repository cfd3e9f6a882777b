// What a rank of the simulated job does: the loop of elastic::run() with a state of two numbers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "elastic/participant.h"

namespace lockstep::simulation {

class Process;

// What all ranks together must never do. Every committed step is reported here as it happens.
class Lineage {
 public:
  // A rank has returned from commit() with this state.
  void committed(std::int64_t step, std::uint64_t state, const std::string& who);
  // Empty: nothing is wrong.
  const std::string& violation() const { return violation_; }
  void report(const std::string& violation) {
    if (violation_.empty()) violation_ = violation;
  }
  std::int64_t steps() const { return states_.empty() ? 0 : states_.rbegin()->first; }
  // The number of steps in the state of a process; -1: it has none.
  void holds(const Process& process, std::int64_t step) { held_[&process] = step; }
  // A rank trains in this generation.
  void established(std::int64_t number, const std::vector<membership::Member>& members) {
    if (number > newest_.number) newest_ = {.number = number, .id = {}, .members = members};
  }
  const membership::Generation& newest_established() const { return newest_; }
  // Whether the process has the state of the last committed step.
  bool has_last_step(const Process& process) const;
  bool finished = false;

 private:
  struct Step {
    std::uint64_t state;
    std::string first;  // who committed it first, and when
  };
  std::map<std::int64_t, Step> states_;
  std::map<const Process*, std::int64_t> held_;
  membership::Generation newest_;
  std::string violation_;
};

// The main function of a rank; the environment of the simulated process says which.
void train(elastic::ParticipantOptions options, std::int64_t steps, Lineage& lineage);

}  // namespace lockstep::simulation
