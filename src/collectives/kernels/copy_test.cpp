#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "collectives/kernels/kernels.h"

namespace lockstep {
namespace {

TEST(CopyBytes, CopiesEverythingAndNothingElseAtAnyAlignment) {
  std::vector<std::uint8_t> source(70'000);
  std::iota(source.begin(), source.end(), std::uint8_t{1});
  for (std::size_t bytes : {0, 1, 63, 64, 4095, 4096, 4097, 4160, 8191, 65536, 65599}) {
    for (std::size_t to = 0; to < 66; to += 5) {
      const std::size_t from = (bytes + 3 * to) % 67;
      std::vector<std::uint8_t> want(70'000, 0xa5);
      std::vector<std::uint8_t> got = want;
      std::copy_n(source.begin() + static_cast<long>(from), bytes, want.begin() + static_cast<long>(64 + to));
      copy_bytes(reinterpret_cast<std::byte*>(got.data()) + 64 + to,
                 reinterpret_cast<const std::byte*>(source.data()) + from, bytes);
      ASSERT_EQ(got, want) << bytes << " bytes to +" << to << " from +" << from;
    }
  }
}

// Non-temporal stores are not ordered by a release store alone: copy_bytes must have waited for them.
TEST(CopyBytes, AReleaseStorePublishesTheBytes) {
  constexpr std::size_t kWords = 4096;
  constexpr std::uint64_t kRounds = 200;
  alignas(64) static std::uint64_t staging[kWords];
  std::atomic<std::uint64_t> written{0}, read{0};
  std::uint64_t wrong = 0;
  std::thread reader([&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      while (written.load(std::memory_order_acquire) < round) std::this_thread::yield();  // with the store below
      for (std::uint64_t word : staging) wrong += word != round;
      read.store(round, std::memory_order_release);  // with the load below
    }
  });
  std::vector<std::uint64_t> source(kWords);
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    std::fill(source.begin(), source.end(), round);
    copy_bytes(reinterpret_cast<std::byte*>(staging), reinterpret_cast<const std::byte*>(source.data()),
               sizeof(staging));
    written.store(round, std::memory_order_release);
    while (read.load(std::memory_order_acquire) < round) std::this_thread::yield();
  }
  reader.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace lockstep
