#include "communicator/message/message_lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "collectives/selector.h"
#include "transport/inproc/inproc_host.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// Passes on to another source, and counts how many attempts to connect run at the same time.
class CountingLinks final : public LinkSource {
 public:
  // `stopped`: such a peer answers no attempt.
  CountingLinks(std::shared_ptr<LinkSource> source, std::function<bool(int)> stopped)
      : source_(std::move(source)), stopped_(std::move(stopped)) {}

  Result<Channel> connect(const LinkName& name, Deadline deadline) override {
    const int running = ++running_;
    for (int most = most_; most < running && !most_.compare_exchange_weak(most, running);) {
    }
    std::this_thread::sleep_for(20ms);
    auto link = stopped_(name.peer) ? Result<Channel>(Status(StatusCode::timed_out, "it is stopped"))
                                    : source_->connect(name, deadline);
    --running_;
    return link;
  }
  Links take_all(const std::string& role) override { return source_->take_all(role); }
  void set_listener(const std::string& role, std::function<void()> listener) override {
    source_->set_listener(role, std::move(listener));
  }
  int data_links(int peer) const override { return source_->data_links(peer); }
  int most() const { return most_; }

 private:
  const std::shared_ptr<LinkSource> source_;
  const std::function<bool(int)> stopped_;
  std::atomic<int> running_ = 0;
  std::atomic<int> most_ = 0;
};

// Rank 0 of many, and messages from it to all others, of which some are stopped.
TEST(MessageLane, ConnectsToManyRanksWithFewThreadsAlthoughSomeAreStopped) {
  constexpr int kRanks = 64;
  constexpr int kStopped = 30;
  auto meshes = value_or_throw(make_inproc_meshes(kRanks, "group#1"));
  const auto links =
      std::make_shared<CountingLinks>(meshes[0].links, [](int peer) { return 1 <= peer && peer <= kStopped; });
  meshes[0].links = links;
  const auto selector = value_or_throw(Selector::create(meshes[0].topology, ""));
  const auto core = std::make_shared<GroupCore>(std::move(meshes[0]), CommunicatorOptions{}, selector);
  MessageLane lane(core);
  const std::vector<float> value(1);
  std::vector<Work> sent;
  std::vector<Work> open;
  for (int peer = 1; peer < kRanks; ++peer) {
    Work work = lane.send(std::span(value), peer, 0, 60s);
    (peer <= kStopped ? open : sent).push_back(work);
  }
  for (Work& work : sent) work.wait();
  EXPECT_LE(links->most(), 8);
  EXPECT_TRUE(std::none_of(open.begin(), open.end(), [](const Work& work) { return work.is_completed(); }));
  core->fail(Status(StatusCode::aborted, "the end of the test"));
  lane.wake();
  for (Work& work : open) EXPECT_THROW(work.wait(), Error);
}

}  // namespace
}  // namespace lockstep
