// Engines whose operations are queued on a device, as NCCL's are: an engine of the test's own, whose queue is run
// by the thread that waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <iostream>
#include <thread>

#include "ddp/backends/c10d/c10d_headers.h"
#include "lockstep/lockstep.h"
#include "support/process_set.h"

#if LOCKSTEP_HAS_C10D

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;

std::atomic<bool> device_hangs{false};
std::atomic<int> closed{0};

// The result is available after wait(), on the thread that waited. The device finishes at once, or never.
class QueuedWork final : public ::c10d::Work {
 public:
  explicit QueuedWork(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  bool isCompleted() override { return !device_hangs; }
  bool wait(std::chrono::milliseconds) override {
    if (tensor_.defined()) tensor_.add_(10);
    return true;
  }

 private:
  at::Tensor tensor_;
};

class QueueEngine final : public C10dBackend {
 public:
  using C10dBackend::C10dBackend;
  c10::intrusive_ptr<::c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                             const ::c10d::AllreduceOptions&) override {
    return c10::make_intrusive<QueuedWork>(tensors[0]);
  }
  c10::intrusive_ptr<::c10d::Work> send(std::vector<at::Tensor>&, int, int) override {
    return c10::make_intrusive<QueuedWork>(at::Tensor());
  }
  c10::intrusive_ptr<::c10d::Work> barrier(const ::c10d::BarrierOptions&) override {
    return c10::make_intrusive<QueuedWork>(at::Tensor());
  }
};

// The only rank of a job on this engine.
ProcessGroupScope queue_job() {
  C10dBackendTraits traits;
  traits.stream_ordered = true;
  traits.tags = false;
  traits.bitwise = false;
  traits.close = [](C10dBackend&) {
    ++closed;
    device_hangs = false;  // what was aborted ends
  };
  register_c10d_backend(
      "queue",
      [](const C10dBackendArguments& arguments) {
        return c10::make_intrusive<QueueEngine>(arguments.rank, arguments.size);
      },
      traits);
  return ProcessGroupScope({.backend = "queue"});
}

#define REQUIRE_TRUE(condition)                                        \
  if (!(condition)) {                                                  \
    std::cerr << __LINE__ << ": " << #condition << " does not hold\n"; \
    return 1;                                                          \
  }

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::cerr << "\"" << part << "\" is not in \"" << text << "\"\n";
  return false;
}

LOCKSTEP_PROCESS_ROLE(queued_operations) {
  const ProcessGroupScope job = queue_job();
  const at::Tensor tensor = torch::ones({4});
  const Work work = all_reduce_async(tensor);
  REQUIRE_TRUE(work.is_completed());
  REQUIRE_TRUE(torch::equal(tensor, torch::ones({4})));  // queued, not done
  work.wait();
  REQUIRE_TRUE(torch::equal(tensor, torch::full({4}, 11.0)));
  const at::Tensor average = torch::full({4}, 2.0);  // the engine has no average: the division is the waiting thread's
  all_reduce(average, {.op = ReduceOp::avg});
  REQUIRE_TRUE(torch::equal(average, torch::full({4}, 12.0)));
  barrier();
  REQUIRE_TRUE(contains(error_of([&] { send(tensor, 0, 7); }), "has no tags"));
  const at::Tensor integers = torch::ones({4}, torch::kLong);
  REQUIRE_TRUE(contains(error_of([&] { all_reduce(integers, {.op = ReduceOp::bit_or}); }), "has no bit_or"));
  REQUIRE_TRUE(closed == 0);
  return 0;
}

TEST(StreamEngine, AnOperationIsDoneForTheHostWhenItIsQueued) {
  ProcessSet ranks = start_ranks(1, "queued_operations");
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
}

LOCKSTEP_PROCESS_ROLE(device_that_hangs) {
  const ProcessGroupScope job = queue_job();
  device_hangs = true;
  const at::Tensor tensor = torch::ones({4});
  const Work work = all_reduce_async(tensor, {.timeout = 200ms});
  const Deadline end = in_seconds(30);
  std::string error;
  while (error.empty() && !end.expired()) {
    std::this_thread::sleep_for(5ms);
    error = error_of([&] { work.wait(); });
  }
  REQUIRE_TRUE(contains(error, "reached its deadline"));
  REQUIRE_TRUE(contains(error_of([&] { all_reduce(tensor); }), "reached its deadline"));
  while (closed == 0 && !end.expired()) std::this_thread::sleep_for(5ms);
  REQUIRE_TRUE(closed == 1);
  return 0;
}

TEST(StreamEngine, ADeviceThatDoesNotFinishEndsTheGroupAtTheDeadline) {
  ProcessSet ranks = start_ranks(1, "device_that_hangs");
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
}

}  // namespace
}  // namespace lockstep::testing

#endif
