// How ranks of one host leave a failed operation.
#include "transport/host_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "transport/inproc/inproc_host.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

// A wait that gives up at its deadline.
class UntilDeadline final : public WaitScope {
 public:
  explicit UntilDeadline(Deadline deadline) : WaitScope(never_, -1), deadline_(deadline) {}
  Deadline deadline() override { return deadline_; }
  Status check(std::span<const int>) override {
    return deadline_.expired() ? Status(StatusCode::timed_out, "the deadline has passed") : Status();
  }

 private:
  static inline std::atomic<bool> never_{false};
  const Deadline deadline_;
};

class LeavingAFailedOperation : public ::testing::Test {
 protected:
  HostTransport& rank(std::size_t r) { return *meshes_[r].host; }
  // Rank r begins an operation.
  void begin(std::size_t r) {
    rank(r).enter();
    rank(r).next_announcement().sequence = 1;
    rank(r).publish();
  }
  bool withdraw(std::size_t r) {
    return rank(r).withdraw([this](int peer) { return gone_[static_cast<std::size_t>(peer)]; },
                            Deadline::after(milliseconds(20)));
  }
  bool sees_all(std::size_t r) {
    UntilDeadline scope(Deadline::after(milliseconds(20)));
    return rank(r).wait_announced(scope).ok();
  }

  std::vector<Mesh> meshes_ = value_or_throw(make_inproc_meshes(2, "test"));
  std::vector<bool> gone_ = {false, false};
};

TEST_F(LeavingAFailedOperation, WaitsForRanksThatAreInIt) {
  begin(0);
  begin(1);
  rank(0).leave();
  EXPECT_FALSE(withdraw(0)) << "rank 1 may be writing to rank 0's memory";
  rank(1).leave();
  EXPECT_TRUE(withdraw(0));
}

TEST_F(LeavingAFailedOperation, DoesNotWaitForRanksThatAreGone) {
  begin(0);
  begin(1);
  rank(0).leave();
  gone_[1] = true;
  EXPECT_TRUE(withdraw(0));
}

TEST_F(LeavingAFailedOperation, KeepsOtherRanksFromStartingIt) {
  begin(0);
  rank(0).leave();
  EXPECT_TRUE(withdraw(0));
  begin(1);
  EXPECT_FALSE(sees_all(1)) << "rank 1 must not find rank 0's memory announced";
}

TEST_F(LeavingAFailedOperation, IsNotNeededAfterSuccess) {
  for (std::size_t turn = 0; turn < 5; ++turn) {
    begin(0);
    begin(1);
    EXPECT_TRUE(sees_all(0));
    EXPECT_TRUE(sees_all(1));
    rank(0).leave();
    rank(1).leave();
  }
}

}  // namespace
}  // namespace lockstep
