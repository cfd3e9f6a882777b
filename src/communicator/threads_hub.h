// Where ranks that are threads of one process meet to form (sub)groups.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "transport/mesh.h"

namespace lockstep {

// Thread-safe.
class ThreadsHub {
 public:
  // Blocks until all `size` ranks have called it with this `scope`, or until the deadline; the error then names the
  // missing ranks.
  Result<Mesh> join(const std::string& scope, int rank, int size, Deadline deadline);

 private:
  struct Meeting {
    std::vector<bool> present;
    int count = 0;
    int taken = 0;
    Status status;
    std::vector<Mesh> meshes;  // filled when all ranks have joined
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<Meeting>> meetings_;  // guarded by mutex_
};

}  // namespace lockstep
