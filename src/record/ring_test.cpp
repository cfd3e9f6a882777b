#include "record/ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace lockstep::record {
namespace {

struct Pair {
  std::uint64_t value = 0;
  std::uint64_t copy = 0;
};

template <std::size_t kCapacity>
std::unique_ptr<Ring<Pair, kCapacity>> empty_ring() {
  return std::make_unique<Ring<Pair, kCapacity>>();
}

TEST(Ring, KeepsTheLatestRecordsInOrder) {
  auto ring = empty_ring<4>();
  for (std::uint64_t i = 0; i < 10; ++i) ring->add({i, i});
  std::vector<std::uint64_t> seen;
  EXPECT_EQ(ring->for_each_from(0, [&](std::uint64_t, const Pair& pair) { seen.push_back(pair.value); }), 10U);
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{6, 7, 8, 9}));
}

TEST(Ring, ContinuesWhereAReaderLeftOff) {
  auto ring = empty_ring<8>();
  std::vector<std::uint64_t> seen;
  const auto visit = [&](std::uint64_t, const Pair& pair) { seen.push_back(pair.value); };
  ring->add({1, 1});
  const std::uint64_t next = ring->for_each_from(0, visit);
  ring->add({2, 2});
  ring->for_each_from(next, visit);
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{1, 2}));
}

TEST(Ring, LeavesOutARecordThatWasNotCompleted) {
  auto ring = empty_ring<4>();
  ring->add({1, 1});
  ring->take();  // as a writer that was killed before it wrote
  ring->add({3, 3});
  std::vector<std::uint64_t> seen;
  ring->for_each_from(0, [&](std::uint64_t, const Pair& pair) { seen.push_back(pair.value); });
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{1, 3}));
}

TEST(Ring, NeverReturnsAMixtureOfTwoRecords) {
  auto ring = empty_ring<4>();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !stop.load(); ++i) {
      ring->add({i, i});
    }
  });
  std::uint64_t seen = 0;
  std::uint64_t last = 0;
  while (seen < 20'000) {
    ring->for_each_from(0, [&](std::uint64_t, const Pair& pair) {
      ASSERT_EQ(pair.value, pair.copy);
      last = pair.value;
      ++seen;
    });
    if (::testing::Test::HasFatalFailure()) break;
  }
  stop.store(true);
  writer.join();
  EXPECT_GT(last, 0U);
}

TEST(Ring, AChangedWordIsSeenTogetherWithWordsChangedBefore) {
  auto ring = empty_ring<4>();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop.load()) {
      const std::uint64_t number = ring->take();
      ring->write(number, {0, 0});
      ring->slot(number).set_word(1, 7);
      ring->slot(number).set_word(0, 7);
    }
  });
  for (std::uint64_t changed = 0; changed < 20'000;) {
    ring->for_each_from(0, [&](std::uint64_t, const Pair& pair) {
      if (pair.value == 0) return;
      ASSERT_EQ(pair.copy, 7U);
      ++changed;
    });
    if (::testing::Test::HasFatalFailure()) break;
  }
  stop.store(true);
  writer.join();
}

TEST(Ring, TakesRecordsOfSeveralThreads) {
  auto ring = empty_ring<4096>();
  std::vector<std::thread> writers;
  for (std::uint64_t writer = 1; writer <= 4; ++writer) {
    writers.emplace_back([&ring, writer] {
      for (int i = 0; i < 1000; ++i) ring->add({writer, writer});
    });
  }
  for (auto& writer : writers) writer.join();
  std::array<int, 5> count{};
  ring->for_each_from(0, [&](std::uint64_t, const Pair& pair) {
    EXPECT_EQ(pair.value, pair.copy);
    ++count[pair.value];
  });
  EXPECT_EQ(count, (std::array<int, 5>{0, 1000, 1000, 1000, 1000}));
}

}  // namespace
}  // namespace lockstep::record
