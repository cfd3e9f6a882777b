#include "ddp/backends/backend_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Choice = BackendSpec::Choice;

TEST(BackendSpec, AnEmptyNameIsTheDefault) {
  EXPECT_THAT(parse_backend_spec("")->choices, IsEmpty());
  EXPECT_THAT(parse_backend_spec("  ")->choices, IsEmpty());
}

TEST(BackendSpec, OneNameServesEveryDevice) {
  for (const char* name : {"lockstep", "gloo", "mpi", "openmpi", "mpich", "nccl", "ucc", "xccl", "my_engine-2.0"}) {
    const auto spec = parse_backend_spec(name);
    ASSERT_TRUE(spec.ok()) << spec.status().to_string();
    EXPECT_THAT(spec->choices, ElementsAre(Choice{"", name}));
    EXPECT_FALSE(spec->per_device());
    EXPECT_EQ(spec->to_string(), name);
  }
}

TEST(BackendSpec, EachDeviceMayHaveItsOwn) {
  const auto spec = parse_backend_spec(" cpu:Lockstep , CUDA:nccl ");
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();
  EXPECT_THAT(spec->choices, ElementsAre(Choice{"cpu", "lockstep"}, Choice{"cuda", "nccl"}));
  EXPECT_TRUE(spec->per_device());
  EXPECT_EQ(spec->to_string(), "cpu:lockstep,cuda:nccl");
  EXPECT_TRUE(parse_backend_spec("cpu:gloo")->per_device());
}

TEST(BackendSpec, ErrorsNameTheInvalidPart) {
  const std::pair<const char*, const char*> cases[] = {{"gloo,nccl", "each needs a kind of device"},
                                                       {"cpu:gloo,nccl", "each needs a kind of device"},
                                                       {"cpu:gloo,cpu:lockstep", "\"cpu\" is given twice"},
                                                       {"cpu:", "name is missing"},
                                                       {"gloo,", "name is missing"},
                                                       {":gloo", "\"\" is not a kind of device"},
                                                       {"cpu:gloo:nccl", "more than one colon"},
                                                       {"gl oo", "\"gl oo\" is not a backend's name"}};
  for (const auto& [text, why] : cases) {
    const auto spec = parse_backend_spec(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.status().code(), StatusCode::invalid_argument);
    EXPECT_THAT(spec.status().message(), HasSubstr(why)) << text;
    EXPECT_THAT(spec.status().message(), HasSubstr("cpu:lockstep,cuda:nccl")) << text;
  }
}

}  // namespace
}  // namespace lockstep::detail
