// One rank of the soak: training with every feature of DDP in turn.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp/soak/usage.h"

namespace lockstep::soak {

class Rank {
 public:
  // Joins the job of the environment; collective, as all calls are. `folder`: for snapshots; rank 0 writes there.
  explicit Rank(const std::string& folder);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  int number() const;
  std::vector<std::string> features() const;
  // Every feature once: objects are made, trained with, compared across ranks, and dropped. A model that exists as
  // long as the Rank makes some more steps. Throws Error that names the feature.
  void run_round();
  // Every rank's usage, in rank order.
  std::vector<Usage> gather(const Usage& mine);
  // Rank 0's decision.
  bool agree(bool stop);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::soak
