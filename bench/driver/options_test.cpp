#include "bench/driver/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseBytes, ReadsUnits) {
  EXPECT_EQ(*parse_bytes("8"), 8u);
  EXPECT_EQ(*parse_bytes("64K"), 64u << 10);
  EXPECT_EQ(*parse_bytes("25M"), 25u << 20);
  EXPECT_EQ(*parse_bytes("1G"), std::size_t{1} << 30);
}

TEST(ParseBytes, RejectsInvalidTextAndDescribesTheFormat) {
  for (const char* text : {"", "0", "-8", "K", "8X", "8 K", "8KB", "1.5M", "99999999999999999999", "2000000G"}) {
    const auto result = parse_bytes(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_THAT(result.status().message(), HasSubstr("64K")) << text;
  }
}

TEST(ParseSizeRange, ReadsOneSizeOrTwo) {
  EXPECT_EQ(parse_size_range("8:64K")->min, 8u);
  EXPECT_EQ(parse_size_range("8:64K")->max, 64u << 10);
  EXPECT_EQ(parse_size_range("25M")->min, 25u << 20);
  EXPECT_EQ(parse_size_range("25M")->max, 25u << 20);
}

TEST(ParseSizeRange, RejectsInvalidRanges) {
  for (const char* text : {"", ":", "8:", ":8", "64K:8", "8:64K:1M"}) EXPECT_FALSE(parse_size_range(text).ok()) << text;
}

TEST(ParseHosts, ReadsHostsAndRanks) {
  EXPECT_EQ(parse_hosts("2:3")->hosts, 2);
  EXPECT_EQ(parse_hosts("2:3")->ranks_each, 3);
  EXPECT_EQ(parse_hosts("4")->hosts, 4);
  EXPECT_EQ(parse_hosts("4")->ranks_each, 1);
  for (const char* text : {"", "1", "2:", ":2", "1:2", "2:0", "33:1", "2:200", "a:b", "2:2x", "-2:2"})
    EXPECT_FALSE(parse_hosts(text).ok()) << text;
}

TEST(ParseRate, TakesBitsPerSecond) {
  EXPECT_EQ(*parse_rate("1gbit"), "1gbit");
  EXPECT_EQ(*parse_rate("100mbit"), "100mbit");
  for (const char* text : {"", "gbit", "0gbit", "1gbyte", "1 gbit", "-1gbit"})
    EXPECT_FALSE(parse_rate(text).ok()) << text;
}

TEST(ParseDTypeAndMemory, AcceptOnlyTheirNames) {
  EXPECT_EQ(*parse_dtype("bf16"), DType::bf16);
  EXPECT_FALSE(parse_dtype("float").ok());
  EXPECT_THAT(*parse_memory("both"), ElementsAre(Memory::registered, Memory::private_memory));
  EXPECT_THAT(*parse_memory("private"), ElementsAre(Memory::private_memory));
  EXPECT_FALSE(parse_memory("shared").ok());
}

TEST(Validate, RejectsInvalidOptions) {
  EXPECT_TRUE(validate({}).ok());
  EXPECT_FALSE(validate({.nproc = 0}).ok());
  EXPECT_FALSE(validate({.nproc = kMaxRanks + 1}).ok());
  EXPECT_FALSE(validate({.step = 1}).ok());
  EXPECT_FALSE(validate({.rounds = 0}).ok());
  EXPECT_FALSE(validate({.iterations = -1}).ok());
  EXPECT_THAT(validate({.peers = {"nccl"}}).message(), HasSubstr("gloo, openmpi, mpich"));
  EXPECT_THAT(validate({.rate = "1gbit"}).message(), HasSubstr("--hosts"));
}

TEST(ValidateDdp, RejectsInvalidOptions) {
  EXPECT_TRUE(validate_ddp({}).ok());
  EXPECT_TRUE(validate_ddp({.backends = {"gloo", "lockstep", "mpich", "openmpi"}, .peers = {"torch"}}).ok());
  EXPECT_THAT(validate_ddp({.model = "transformer"}).message(), HasSubstr("mlp, cnn, gpt"));
  EXPECT_THAT(validate_ddp({.nproc = 0}).message(), HasSubstr("--nproc"));
  EXPECT_THAT(validate_ddp({.rounds = 0}).message(), HasSubstr("--rounds"));
  EXPECT_THAT(validate_ddp({.batch = 0}).message(), HasSubstr("--batch"));
  EXPECT_THAT(validate_ddp({.steps = 0}).message(), HasSubstr("--steps"));
  EXPECT_THAT(validate_ddp({.backends = {"mpi"}}).message(), HasSubstr("lockstep, gloo, openmpi, mpich"));
  EXPECT_THAT(validate_ddp({.peers = {"gloo"}}).message(), HasSubstr("torch"));
  EXPECT_THAT(validate_ddp({.rate = "1gbit"}).message(), HasSubstr("--hosts"));
  EXPECT_TRUE(validate_ddp({.hosts = {2, 1}, .rate = "1gbit"}).ok());
}

TEST(SizesOf, GrowsByTheStepAndEndsWithTheMaximum) {
  EXPECT_THAT(sizes_of({.bytes = {8, 512}}), ElementsAre(8, 32, 128, 512));
  EXPECT_THAT(sizes_of({.bytes = {8, 100}, .step = 2}), ElementsAre(8, 16, 32, 64, 100));
  EXPECT_THAT(sizes_of({.bytes = {8, 8}}), ElementsAre(8));
  EXPECT_THAT(sizes_of({.collective = Collective::barrier}), ElementsAre(0));
}

TEST(IterationsAt, DecreaseWithSizeUnlessRequested) {
  EXPECT_GT(iterations_at({}, 8), iterations_at({}, 1 << 20));
  EXPECT_GT(iterations_at({}, 1 << 20), iterations_at({}, 128 << 20));
  EXPECT_EQ(iterations_at({.iterations = 3}, 8), 3);
}

}  // namespace
}  // namespace lockstep::bench
