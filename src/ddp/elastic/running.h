// Whether elastic::run() is running in this process, for what cannot be used there.
#pragma once

#include <atomic>
#include <string>

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

// Throws Error (invalid_argument) inside elastic::run.
inline void refuse_in_elastic_job(const std::string& what) {
  if (elastic_runs == 0) return;
  throw Error({StatusCode::invalid_argument,
               what + " cannot be used inside elastic::run: it keeps state that only one rank has, which would be lost "
                      "with that rank"});
}

}  // namespace lockstep::detail
