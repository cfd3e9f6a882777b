// One rank of the fuzzer: its groups, and the cases that it runs on them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ddp/model_fuzz/outcome.h"

namespace lockstep {
class ProcessGroup;
}

namespace lockstep::fuzz {

class RankLoop {
 public:
  // Joins the world of all ranks, with a deadline of 60 s on every operation. Throws Error.
  RankLoop();
  ~RankLoop();

  int rank() const;
  // Nothing if this rank is not in the case's world. A new `generation` means that the groups of this
  // size have ended.
  std::optional<Outcome> run(int generation, std::uint64_t seed, const std::vector<int>& edits);

 private:
  struct Groups {
    int generation = 0;
    std::shared_ptr<ProcessGroup> ddp, check;
  };
  const Groups& groups_of(int world, int generation);

  std::shared_ptr<ProcessGroup> world_;
  std::map<int, Groups> groups_;  // by size
};

}  // namespace lockstep::fuzz
