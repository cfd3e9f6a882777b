// Whether elastic::run() is running in this process, for what cannot be used there; and in which generation of which
// job, for snapshots.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "lockstep/base/status.h"

namespace lockstep::detail {

inline std::atomic<int> elastic_runs = 0;

class ElasticRunning {
 public:
  ElasticRunning() { ++elastic_runs; }
  ~ElasticRunning() { --elastic_runs; }
  ElasticRunning(const ElasticRunning&) = delete;
  ElasticRunning& operator=(const ElasticRunning&) = delete;
};

// The generation that this process belongs to or, after elastic::run() has returned, belonged to last: what it saves
// then is still that job's. Thread-safe.
struct JobGeneration {
  std::string job = {};  // empty: this process has never been in an elastic job
  std::int64_t number = 0;
};
inline std::mutex present_generation_mutex;
inline JobGeneration present_generation_record;  // guarded by the mutex
inline JobGeneration present_generation() {
  const std::lock_guard lock(present_generation_mutex);
  return present_generation_record;
}
inline void set_present_generation(JobGeneration generation) {
  const std::lock_guard lock(present_generation_mutex);
  present_generation_record = std::move(generation);
}

// Throws Error (invalid_argument) inside elastic::run.
inline void refuse_in_elastic_job(const std::string& what) {
  if (elastic_runs == 0) return;
  throw Error({StatusCode::invalid_argument,
               what + " cannot be used inside elastic::run: it keeps state that only one rank has, which would be lost "
                      "with that rank"});
}

}  // namespace lockstep::detail
