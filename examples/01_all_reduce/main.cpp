// Lesson 1: all-reduce, the operation that DDP averages gradients with. Every process contributes a vector, and every
// process gets the sum of all of them. This program uses the engine alone, without LibTorch: it creates a Communicator,
// allocates registered memory, and sums 25 MiB 20 times.
//
// Start it once per rank. Four variables identify the rank and the address where the ranks meet:
//   RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ./01_all_reduce &
//   RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ./01_all_reduce
// or let the launcher set them:
//   lockstep run --nproc-per-node 2 ./01_all_reduce
#include <lockstep/engine.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>

namespace {

constexpr std::size_t kElements = std::size_t{25} << 18;  // 25 MiB of float: the gradients of a small model
constexpr int kRounds = 20;

int run() {
  // Finds the other ranks through the four variables, and connects to them.
  auto group = lockstep::Communicator::create();

  // Registered memory: the ranks of one host reduce it in place, without a copy.
  auto memory = group->allocate(kElements * sizeof(float));
  const std::span data(reinterpret_cast<float*>(memory->data()), kElements);

  // Every element of rank r is r + 1, so the sum is 1 + 2 + ... + n.
  const auto mine = static_cast<float>(group->rank() + 1);
  const auto expected = static_cast<float>(group->size() * (group->size() + 1) / 2);
  double best_seconds = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    std::ranges::fill(data, mine);
    group->barrier();
    const auto start = std::chrono::steady_clock::now();
    group->all_reduce(data);
    best_seconds =
        std::min(best_seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (!std::ranges::all_of(data, [&](float value) { return value == expected; })) {
      std::fprintf(stderr, "rank %d: the sum of round %d is wrong\n", group->rank(), round);
      return 1;
    }
  }

  std::printf("rank %d of %d: contributed %g, got %g in all %zu elements; %.1f MiB in %.2f ms, %.1f GB/s\n",
              group->rank(), group->size(), mine, data[0], data.size(),
              static_cast<double>(data.size_bytes()) / (1 << 20), best_seconds * 1e3,
              static_cast<double>(data.size_bytes()) / best_seconds / 1e9);
  return 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
