#include "transport/host_arena.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/shared_memory.h"

namespace lockstep {
namespace {

HostArena make_arena(int local_size, int group_size) {
  std::shared_ptr<SharedMemory> memory =
      value_or_throw(SharedMemory::create(HostArena::bytes(local_size, group_size), "test"));
  return HostArena(memory, memory->data(), local_size, group_size);
}

TEST(HostArena, PlacesDoNotOverlapAndAreAligned) {
  const HostArena arena = make_arena(3, 5);
  const auto address = [](const void* place) { return reinterpret_cast<std::uintptr_t>(place); };
  std::vector<std::uintptr_t> ends{address(&arena.words() + 1)};
  for (int local = 0; local < 3; ++local) {
    EXPECT_EQ(address(&arena.area(local)) % kCacheLine, 0U);
    EXPECT_GE(address(&arena.area(local)), ends.back() + (local == 0 ? sizeof(SharedFailure) : 0));
    ends.push_back(address(&arena.area(local) + 1));
  }
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_GE(address(&arena.state(rank)), ends.back());
    ends.push_back(address(&arena.state(rank) + 1));
  }
  for (int local = 0; local < 3; ++local) {
    for (const std::size_t slot : {0, 1}) {
      EXPECT_EQ(address(arena.payload(local, slot)) % kCacheLine, 0U);
      EXPECT_GE(address(arena.payload(local, slot)), ends.back());
      ends.push_back(address(arena.payload(local, slot)) + kInlineCapacity);
    }
  }
  for (int local = 0; local < 3; ++local) {
    EXPECT_GE(address(arena.staging(local)), ends.back());
    ends.push_back(address(arena.staging(local)) + kStagingBytes);
  }
  EXPECT_LE(ends.back(), address(&arena.words()) + HostArena::bytes(3, 5));
}

TEST(HostArena, TheFirstReasonOfAFailureCountsForAllRanks) {
  const HostArena arena = make_arena(2, 2);
  EXPECT_EQ(arena.failure(), std::nullopt);
  const Status first(StatusCode::peer_lost, "rank 2 was lost");
  EXPECT_EQ(arena.record_failure(first), first);
  EXPECT_EQ(arena.record_failure(Status(StatusCode::aborted, "later")), first);
  EXPECT_EQ(arena.failure(), first);
}

TEST(HostArena, OneOfManyReasonsWins) {
  const HostArena arena = make_arena(8, 8);
  std::vector<std::thread> threads;
  std::vector<Status> counts(8);
  for (int rank = 0; rank < 8; ++rank) {
    threads.emplace_back([&, rank] {
      counts[static_cast<std::size_t>(rank)] =
          arena.record_failure(Status(StatusCode::aborted, std::string(1000, static_cast<char>('a' + rank))));
    });
  }
  for (auto& thread : threads) thread.join();
  const Status first = arena.failure().value();
  EXPECT_EQ(first.message(), std::string(1000, first.message().front()));
  for (const Status& each : counts) EXPECT_EQ(each, first) << "also while the first rank still writes its reason";
}

TEST(HostArena, ALongReasonIsTruncated) {
  const HostArena arena = make_arena(1, 1);
  static_cast<void>(arena.record_failure(Status(StatusCode::internal, std::string(100000, 'x'))));
  EXPECT_EQ(arena.failure().value().message().size(), SharedFailure::kCapacity);
}

}  // namespace
}  // namespace lockstep
