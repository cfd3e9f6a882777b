// Five rank processes that are given one case after the other.
//
// The driver publishes cases in a store and collects the ranks' outcomes from it. A case of a smaller world runs on the
// first ranks. After a case that ended its groups, the ranks form new ones; after a hang or a crash they are killed and
// started again. Used by one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "ddp/model_fuzz/case.h"
#include "ddp/model_fuzz/outcome.h"
#include "store/tcp/tcp_store.h"
#include "store/tcp/tcp_store_server.h"
#include "support/process_set.h"

namespace lockstep::fuzz {

inline constexpr int kMostRanks = 5;

class RankProcesses {
 public:
  // Throws if the processes cannot be started.
  RankProcesses();
  // Ends the processes.
  ~RankProcesses();

  // Runs a case. Blocks for at most about two minutes.
  Outcome run(const Case& item);

 private:
  void start();

  std::unique_ptr<TcpStoreServer> server_;
  std::shared_ptr<TcpStore> store_;
  std::optional<testing::ProcessSet> ranks_;
  int number_ = 0;                  // of the case
  std::map<int, int> generations_;  // of groups, by world size
};

}  // namespace lockstep::fuzz
