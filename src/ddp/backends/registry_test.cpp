#include "ddp/backends/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ddp/backends/device_router.h"
#include "ddp/testing/error_of.h"
#include "ddp/testing/test_ranks.h"

namespace lockstep::detail {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using testing::error_of;
using ::testing::HasSubstr;

// LOCKSTEP_BACKEND for the length of a test.
class BackendVariable {
 public:
  explicit BackendVariable(const char* value) {
    if (const char* before = std::getenv("LOCKSTEP_BACKEND")) before_ = before;
    ::setenv("LOCKSTEP_BACKEND", value, 1);
  }
  ~BackendVariable() {
    if (before_) {
      ::setenv("LOCKSTEP_BACKEND", before_->c_str(), 1);
    } else {
      ::unsetenv("LOCKSTEP_BACKEND");
    }
  }

 private:
  std::optional<std::string> before_;
};

TEST(BackendRegistry, LockstepIsAlwaysAvailable) { EXPECT_THAT(available_backends(), Contains("lockstep")); }

TEST(BackendRegistry, TheDefaultIsLockstepForCpuTensors) {
  const BackendSpec spec = default_backend_spec();
  EXPECT_EQ(spec.to_string(), check_backend("nccl").ok() ? "cpu:lockstep,cuda:nccl" : "lockstep");
}

TEST(BackendRegistry, AnErrorNamesWhatIsMissingAndWhatIsAvailable) {
  const std::string unknown = error_of([] { requested_backend_spec({.backend = "smoke-signals"}); });
  EXPECT_THAT(unknown, AllOf(HasSubstr("init_process_group: there is no backend \"smoke-signals\" in this build"),
                             HasSubstr("it has: "), HasSubstr("lockstep")));
  if (check_backend("xccl").ok()) GTEST_SKIP() << "this LibTorch has XCCL";
  EXPECT_THAT(error_of([] { requested_backend_spec({.backend = "cpu:lockstep,xpu:xccl"}); }),
              AllOf(HasSubstr("this LibTorch was built without XCCL; it has: "), HasSubstr("lockstep")));
}

TEST(BackendRegistry, TheVariableAppliesIfTheProgramNamesNoBackend) {
  const BackendVariable variable("cpu:lockstep");
  EXPECT_EQ(requested_backend_spec({}).to_string(), "cpu:lockstep");
  EXPECT_EQ(requested_backend_spec({.backend = "lockstep"}).to_string(), "lockstep");
}

TEST(BackendRegistry, AnErrorNamesTheVariableThatCausedIt) {
  const BackendVariable variable("a,b");
  EXPECT_THAT(error_of([] { requested_backend_spec({}); }), HasSubstr("LOCKSTEP_BACKEND: backend \"a,b\""));
}

TEST(BackendRegistry, ANameCanBeRegisteredOnlyOnce) {
  const BackendEntry entry{[] { return Status(); }, [](GroupRequest&) { return nullptr; }};
  EXPECT_THAT(error_of([&] { register_backend("lockstep", entry); }),
              HasSubstr("there is a backend \"lockstep\" already"));
  EXPECT_THAT(error_of([&] { register_backend("Mine", entry); }), HasSubstr("lower case"));
  static int count = 0;  // a name is taken for good; tests may be repeated in one process
  const std::string name = "registered-in-a-test-" + std::to_string(++count);
  register_backend(name, entry);
  EXPECT_TRUE(check_backend(name).ok());
  EXPECT_THAT(error_of([&] { register_backend(name, entry); }), HasSubstr("already"));
}

TEST(DeviceRouter, SendsEachTensorToItsDevicesGroup) {
  testing::run_ranks(2, [](const testing::Group& group) {
    auto router = std::make_shared<DeviceRouter>("cpu:here", std::map<std::string, testing::Group>{{"cpu", group}});
    EXPECT_EQ(router->size(), 2);
    EXPECT_EQ(router->rank(), group->rank());
    const at::Tensor values = at::full({3}, static_cast<float>(router->rank() + 1));
    router->all_reduce(values, {}).wait();
    EXPECT_TRUE(values.equal(at::full({3}, 3.0F)));
    router->barrier({}).wait();
    const at::Tensor elsewhere = at::empty({2}, at::TensorOptions().device(at::kMeta));
    EXPECT_THAT(router->check(elsewhere, std::nullopt).message(),
                AllOf(HasSubstr("on meta"), HasSubstr("\"cpu:here\" names no engine")));
    const std::vector<int> ranks{1, 0};
    auto reversed = router->new_group(ranks, "reversed");
    EXPECT_EQ(reversed->rank(), 1 - router->rank());
    EXPECT_EQ(reversed->backend(), "cpu:here");
    router->barrier({}).wait();
  });
}

TEST(DeviceRouter, ABarrierFailsIfOneGroupFails) {
  const auto errors = testing::errors_of_ranks(2, [](const testing::Group& group) {
    DeviceRouter router("cpu:here", {{"cpu", group}});
    if (router.rank() == 1) router.abort("enough");
    router.barrier({}).wait();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("enough"));
}

}  // namespace
}  // namespace lockstep::detail
