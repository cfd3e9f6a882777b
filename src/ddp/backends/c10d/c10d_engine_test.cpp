// An engine of a user's own, through register_c10d_backend().
#include "ddp/backends/c10d/c10d_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ddp/testing/test_ranks.h"

#if LOCKSTEP_HAS_C10D

namespace lockstep::detail {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// Completed by the test, not by the engine.
class HeldWork : public ::c10d::Work {
 public:
  void release() { finish(); }
};

// Alone in the world: every sum is what it was. The second all-reduce does not end by itself.
class LoneBackend : public C10dBackend {
 public:
  LoneBackend(int rank, int size) : C10dBackend(rank, size) {}
  const std::string getBackendName() const override { return "lone"; }
  c10::intrusive_ptr<::c10d::Work> allreduce(std::vector<at::Tensor>&,
                                             const ::c10d::AllreduceOptions& options) override {
    EXPECT_TRUE(options.reduceOp == ::c10d::ReduceOp::SUM);
    auto work = c10::make_intrusive<HeldWork>();
    if (++calls_ != 2) {
      work->release();
    } else {
      held = work;
    }
    return work;
  }

  static inline c10::intrusive_ptr<HeldWork> held;

 private:
  int calls_ = 0;
};

// A name is taken for good; tests may be repeated in one process.
std::string fresh_name(const std::string& name) {
  static int count = 0;
  return name + std::to_string(++count);
}

TEST(RegisteredC10dBackend, WorksLikeABuiltInBackend) {
  const std::string name = fresh_name("lone");
  C10dBackendArguments given;
  register_c10d_backend(name, [&given](const C10dBackendArguments& arguments) {
    given = arguments;
    given.store->set("seen", std::vector<std::uint8_t>{1});
    return c10::make_intrusive<LoneBackend>(arguments.rank, arguments.size);
  });
  EXPECT_THAT(available_backends(), Contains(name));
  const auto errors = testing::errors_of_ranks(
      1,
      [&](const testing::Group& group) {
        EXPECT_EQ(group->backend(), name);
        EXPECT_EQ(given.size, 1);
        EXPECT_TRUE(given.one_host);
        EXPECT_EQ(given.address, "127.0.0.1");
        const at::Tensor values = at::full({3}, 6.0F);
        group->all_reduce(values, {.op = ReduceOp::avg}).wait();
        EXPECT_TRUE(values.equal(at::full({3}, 6.0F)));

        // An engine that cannot be closed: the operation ends at its deadline all the same, and its tensor is kept.
        at::Tensor kept = at::ones({3});
        const at::Storage memory = kept.storage();
        const Work stuck = group->all_reduce(kept, {.timeout = 200ms});
        kept.reset();
        const Status outcome = stuck.wait(Deadline::after(10s));
        EXPECT_EQ(outcome.code(), StatusCode::timed_out);
        EXPECT_THAT(outcome.message(), AllOf(HasSubstr("all_reduce(count 3, f32, sum) #2"), HasSubstr(name)));
        EXPECT_GT(memory.use_count(), 1U) << "the engine may still write to it";
        LoneBackend::held->release();
        LoneBackend::held.reset();
        group->all_reduce(at::ones({1}), {});
      },
      name);
  EXPECT_THAT(errors[0], HasSubstr("is dead"));
}

TEST(RegisteredC10dBackend, AnEngineThatCannotBeCreatedReportsTheReason) {
  const std::string name = fresh_name("broken");
  register_c10d_backend(name, [](const C10dBackendArguments&) -> c10::intrusive_ptr<C10dBackend> {
    throw std::runtime_error("no such device");
  });
  const auto errors = testing::errors_of_ranks(
      2, [](const testing::Group&) {}, name);
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("connecting backend \"" + name), HasSubstr("no such device")));
  }
}

}  // namespace
}  // namespace lockstep::detail

#endif
