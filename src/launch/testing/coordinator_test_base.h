// What the tests of the coordinator have in common.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/meeting/coordinator.h"

namespace lockstep::launch {

using namespace std::chrono_literals;

// A store and a clock for a coordinator "a".
class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest() { open({}); }

  void open(const JobState& known) {
    coordinator_.emplace(record("a"), job_, known, CoordinatorOptions{.last_call_timeout = 30s, .silent_timeout = 10s},
                         now_);
  }
  void job_of(int min, int max, bool elastic = false) {
    job_ = {.run_id = "job", .min_nodes = min, .max_nodes = max, .elastic = elastic};
    for (auto& [id, state] : states_) state.job = job_;
    open({});
  }

  static NodeRecord record(const std::string& id) {
    return {.id = id, .host = "host-" + id, .pid = 1, .nproc = 1, .address = id + ":1"};
  }
  NodeState& state(const std::string& id) {
    const auto [found, is_new] = states_.try_emplace(id);
    if (is_new) {
      found->second.record = record(id);
      found->second.job = job_;
      found->second.wants_round = true;
    }
    return found->second;
  }
  // These nodes are alive and send a heartbeat.
  void update(const std::vector<std::string>& beating, std::chrono::milliseconds later = 50ms) {
    now_ += later;
    for (const auto& id : beating) {
      NodeState& one = state(id);
      if (accepts_) one.accepted = job_state().round.id;  // it has read it since the last update
      pairs_[kBeatPrefix + id] = std::to_string(++beat_);
    }
    for (const auto& [id, state] : states_) pairs_[kNodePrefix + id] = format(state);
    coordinator_->update(pairs_, now_, [&](const membership::Member& node) -> std::optional<membership::Attestation> {
      const auto found = attested_.find(node.id);
      if (found == attested_.end()) return std::nullopt;
      return membership::Attestation{.accepted = found->second};
    });
  }
  void close_connection(const std::string& id) {
    pairs_[fmt::format("{}{}/{}", kGonePrefix, id, state(id).connection)] = "gone";
  }
  // These nodes enter the round that has begun.
  void enter(const std::vector<std::string>& ids) {
    for (const auto& id : ids) {
      state(id).round = job_state().round.number;
      state(id).wants_round = false;
    }
  }
  std::vector<std::string> nodes() const {
    std::vector<std::string> ids;
    for (const auto& node : job_state().round.nodes) ids.push_back(node.id);
    return ids;
  }
  const JobState& job_state() const { return coordinator_->job_state(); }

  JobConfig job_{.run_id = "job", .min_nodes = 2, .max_nodes = 2};
  Coordinator::Clock::time_point now_{std::chrono::hours(1)};
  std::map<std::string, NodeState> states_;
  std::map<std::string, std::string> pairs_;
  std::map<std::string, std::vector<membership::Generation>> attested_;  // ends, and what they had accepted
  bool accepts_ = true;                                                  // nodes accept the rounds that are decided
  int beat_ = 0;
  std::optional<Coordinator> coordinator_;
};

// What a node of a round with `nodes` knew when its coordinator was lost.
inline JobState known_round(const std::vector<NodeRecord>& nodes) {
  JobState known;
  known.term = 4;
  known.restarts = 2;
  known.round = {.number = 3, .id = "r3", .master = "x:1", .nodes = nodes};
  known.established = known.round;
  return known;
}

}  // namespace lockstep::launch
