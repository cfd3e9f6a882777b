#include "lockstep/ddp/distributed_sampler.h"

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "lockstep/base/status.h"
#include "lockstep/ddp/init.h"
#include "support/python.h"

namespace lockstep {
namespace {

using Indices = std::vector<std::size_t>;

// One pass, in batches of `batch`.
Indices drain(DistributedSampler& sampler, std::size_t batch = 3) {
  Indices result;
  sampler.reset();
  while (auto indices = sampler.next(batch)) result.insert(result.end(), indices->begin(), indices->end());
  return result;
}

Indices take(DistributedSampler& sampler, std::size_t count) {
  auto indices = sampler.next(count);
  return indices ? *indices : Indices();
}

DistributedSamplerOptions options(int num_replicas, int rank) {
  return {.num_replicas = num_replicas, .rank = rank, .seed = 7};
}

Indices all_of(std::size_t size) {
  Indices all(size);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

struct Arguments {
  std::size_t size;
  int num_replicas;
  bool shuffle;
  std::int64_t seed;
  bool drop_last;
  std::int64_t epoch;
};

std::vector<Arguments> grid() {
  std::vector<Arguments> result;
  for (std::size_t size : {1, 2, 3, 7, 10, 64, 101, 1000})
    for (int num_replicas : {1, 2, 3, 4, 8})
      for (bool shuffle : {true, false})
        for (std::int64_t seed : {0, 42, 1234567})
          for (bool drop_last : {false, true})
            for (std::int64_t epoch : {0, 5}) result.push_back({size, num_replicas, shuffle, seed, drop_last, epoch});
  return result;
}

std::string our_lines() {
  std::ostringstream out;
  for (const Arguments& a : grid()) {
    for (int rank = 0; rank < a.num_replicas; ++rank) {
      DistributedSampler sampler(a.size, {.num_replicas = a.num_replicas,
                                          .rank = rank,
                                          .shuffle = a.shuffle,
                                          .seed = a.seed,
                                          .drop_last = a.drop_last});
      sampler.set_epoch(a.epoch);
      out << sampler.num_samples() << ' ' << sampler.total_size() << ':';
      for (std::size_t index : drain(sampler)) out << ' ' << index;
      out << '\n';
    }
  }
  return out.str();
}

// What the program prints, or nothing if it fails.
std::optional<std::string> output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return std::nullopt;
  std::string text;
  char buffer[4096];
  while (const std::size_t count = std::fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, count);
  return pclose(pipe) == 0 ? std::optional(text) : std::nullopt;
}

TEST(DistributedSampler, GivesTheIndicesOfPyTorchInItsOrder) {
  const std::string& python = testing::python_with_torch();
  if (python.empty()) GTEST_SKIP() << testing::kNoPythonTorch;
  const auto theirs = output_of(python + R"( -c '
from torch.utils.data.distributed import DistributedSampler
for size in (1, 2, 3, 7, 10, 64, 101, 1000):
  for n in (1, 2, 3, 4, 8):
    for shuffle in (True, False):
      for seed in (0, 42, 1234567):
        for drop_last in (False, True):
          for epoch in (0, 5):
            for rank in range(n):
              s = DistributedSampler(range(size), n, rank, shuffle, seed, drop_last)
              s.set_epoch(epoch)
              print("%d %d:" % (s.num_samples, s.total_size) + "".join(" %d" % i for i in s))
')");
  ASSERT_TRUE(theirs) << "python failed";
  std::istringstream expected(*theirs), got(our_lines());
  int lines = 0;
  for (std::string theirs_line, our_line; std::getline(expected, theirs_line); ++lines) {
    ASSERT_TRUE(std::getline(got, our_line));
    ASSERT_EQ(our_line, theirs_line) << "line " << lines;
  }
  EXPECT_EQ(lines, 8 * 2 * 3 * 2 * 2 * (1 + 2 + 3 + 4 + 8));
}

TEST(DistributedSampler, PadsADatasetSmallerThanTheWorld) {
  for (int rank = 0; rank < 7; ++rank) {
    DistributedSampler sampler(3, {.num_replicas = 7, .rank = rank, .shuffle = false});
    EXPECT_EQ(drain(sampler), Indices{static_cast<std::size_t>(rank % 3)});
  }
}

TEST(DistributedSampler, WithoutPaddingGivesEverySampleOnce) {
  for (std::size_t size : {0, 1, 5, 12}) {
    Indices seen;
    for (int rank = 0; rank < 3; ++rank) {
      DistributedSampler sampler(size, {.num_replicas = 3, .rank = rank, .shuffle = false, .pad = false});
      const Indices part = drain(sampler);
      EXPECT_EQ(part.size(), sampler.num_samples());
      seen.insert(seen.end(), part.begin(), part.end());
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, all_of(size));
  }
}

TEST(DistributedSampler, AnEmptyDatasetHasNoSamples) {
  DistributedSampler sampler(0, options(2, 1));
  EXPECT_TRUE(drain(sampler).empty());
}

struct Numbers : torch::data::datasets::Dataset<Numbers, torch::data::Example<>> {
  torch::data::Example<> get(std::size_t index) override {
    return {torch::tensor(static_cast<std::int64_t>(index)), torch::tensor(0)};
  }
  torch::optional<std::size_t> size() const override { return 20; }
};

TEST(DistributedSampler, TheEpochReachesTheLoadersCopy) {
  DistributedSampler sampler(20, options(2, 0)), reference(20, options(2, 0));
  auto loader = torch::data::make_data_loader(Numbers().map(torch::data::transforms::Stack<>()), sampler, 4);
  std::vector<Indices> passes;
  for (std::int64_t epoch : {0, 1, 1}) {
    sampler.set_epoch(epoch);
    reference.set_epoch(epoch);
    Indices seen;
    for (auto& batch : *loader) {
      for (std::int64_t i = 0; i < batch.data.numel(); ++i) seen.push_back(batch.data[i].item<std::int64_t>());
    }
    EXPECT_EQ(seen, drain(reference));
    passes.push_back(seen);
  }
  EXPECT_NE(passes[0], passes[1]);
  EXPECT_EQ(passes[1], passes[2]);
}

TEST(DistributedSampler, ContinuesAtTheSameWorldSizeAsIfNothingHadHappened) {
  for (std::size_t size : {2, 50, 53}) {
    for (int rank = 0; rank < 4; ++rank) {
      DistributedSampler whole(size, options(4, rank)), first(size, options(4, rank)), second(size, options(4, rank));
      whole.set_epoch(3);
      first.set_epoch(3);
      Indices seen = take(first, 5);
      second.load_state(first.state());
      second.set_epoch(3);
      const Indices rest = drain(second);
      seen.insert(seen.end(), rest.begin(), rest.end());
      EXPECT_EQ(seen, drain(whole)) << size << " samples, rank " << rank;
    }
  }
}

TEST(DistributedSampler, ContinuesAtOtherWorldSizesWithEverySampleOnce) {
  constexpr std::size_t kSize = 103;
  for (const auto& worlds : std::vector<std::vector<int>>{{4, 2}, {2, 5}, {3, 4, 1}, {1, 7, 3}}) {
    DistributedSamplerState state{.epoch = 2, .seed = 7, .dataset_size = kSize};
    Indices seen;
    for (std::size_t i = 0; i < worlds.size(); ++i) {
      DistributedSamplerState next;
      for (int rank = 0; rank < worlds[i]; ++rank) {
        DistributedSampler sampler(
            kSize, {.num_replicas = worlds[i], .rank = rank, .shuffle = false, .seed = 99, .pad = false});
        sampler.load_state(state);
        const bool last = i + 1 == worlds.size();
        const Indices part = last ? drain(sampler) : take(sampler, 6);
        seen.insert(seen.end(), part.begin(), part.end());
        if (rank == 0) next = sampler.state();
        EXPECT_EQ(sampler.state().epoch, 2);
        if (last) {  // the next epoch is a whole one, dealt to the new ranks
          sampler.set_epoch(3);
          EXPECT_EQ(drain(sampler).size(), sampler.num_samples());
        }
      }
      state = next;
    }
    EXPECT_EQ(state.consumed, static_cast<std::int64_t>(kSize));
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, all_of(kSize));
  }
}

TEST(DistributedSampler, ALoaderThatFetchesAheadPassesTheNumberOfTrainedSamples) {
  DistributedSampler sampler(40, options(2, 0)), resumed(40, options(2, 0)), whole(40, options(2, 0));
  take(sampler, 12);
  EXPECT_EQ(sampler.state().consumed, 24);
  const DistributedSamplerState state = sampler.state(8);
  EXPECT_EQ(state.consumed, 16);
  EXPECT_THROW(sampler.state(13), Error);
  resumed.load_state(state);
  const Indices all = drain(whole);
  EXPECT_EQ(drain(resumed), Indices(all.begin() + 8, all.end()));
  EXPECT_EQ(drain(resumed), all) << "the pass after a continued one is whole";
}

TEST(DistributedSampler, IsSavedToAndLoadedFromAnArchive) {
  DistributedSampler sampler(40, options(2, 1)), copy(40, {.num_replicas = 2, .rank = 1, .shuffle = false});
  sampler.set_epoch(4);
  take(sampler, 5);
  torch::serialize::OutputArchive out;
  sampler.save(out);
  std::stringstream stream;
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  copy.load(in);
  EXPECT_EQ(copy.state(), sampler.state());
  copy.reset();
  EXPECT_EQ(take(copy, 100), take(sampler, 100));
}

TEST(DistributedSampler, TakesRankAndReplicasFromTheDefaultGroup) {
  const std::string path = ::testing::TempDir() + "lockstep_sampler_" + std::to_string(getpid());
  {
    ProcessGroupScope job({.init_method = "file://" + path, .rank = 0, .world_size = 1});
    DistributedSampler sampler(10, {.shuffle = false});
    EXPECT_EQ(drain(sampler), all_of(10));
  }
  std::filesystem::remove(path);
}

TEST(DistributedSampler, RefusesInvalidArguments) {
  EXPECT_THROW(DistributedSampler(10, options(2, 2)), Error);
  EXPECT_THROW(DistributedSampler(10, options(2, -1)), Error);
  EXPECT_THROW(DistributedSampler(10, options(0, 0)), Error);
  EXPECT_THROW(DistributedSampler(10, {}), Error) << "no default group";
  DistributedSampler sampler(10, options(2, 0));
  EXPECT_THROW(sampler.load_state({.dataset_size = 11}), Error);
  EXPECT_THROW(sampler.load_state({.dataset_size = 10, .consumed = 11}), Error);
}

}  // namespace
}  // namespace lockstep
