// Registered memory between processes: used in place, freed early, kept after its group.
#include <cstring>
#include <vector>

#include "multiproc/rank_process.h"

namespace lockstep::testing {
namespace {

std::span<float> floats(const RegisteredMemory& memory) {
  return {reinterpret_cast<float*>(memory.data()), memory.size() / sizeof(float)};
}

// Ranks allocate and free memory at different times, also while others have not mapped it yet, or still map it.
LOCKSTEP_PROCESS_ROLE(memory_is_replaced) {
  const NothingLeftBehind nothing;
  {
    const auto group = join_world();
    const auto kept = group->allocate(1 << 20);
    for (int turn = 0; turn < 30; ++turn) {
      // Not collective: only some ranks replace theirs, and use it in the very next operation.
      auto fresh = (turn + group->rank()) % 3 == 0 ? group->allocate(1 << 20) : kept;
      const auto data = floats(*fresh);
      std::fill(data.begin(), data.end(), static_cast<float>(group->rank() + turn));
      group->all_reduce(data);
      float expected = 0;
      for (int rank = 0; rank < group->size(); ++rank) expected += static_cast<float>(rank + turn);
      for (const float value : data) require(value == expected, "a wrong sum in registered memory");
      fresh.reset();  // at once: peers may be busy or sleep, and still map it
    }
  }
  nothing.check();
  return 0;
}

TEST(RegisteredMemoryOfProcesses, IsReplacedWhilePeersUseIt) {
  for (const int size : {2, 4}) {
    ProcessSet ranks = start_ranks(size, "memory_is_replaced");
    expect_success(ranks);
  }
}

LOCKSTEP_PROCESS_ROLE(memory_outlives_group) {
  const NothingLeftBehind nothing;
  {
    std::shared_ptr<RegisteredMemory> memory;
    {
      const auto group = join_world();
      memory = group->allocate(1 << 20);
      floats(*memory)[5] = static_cast<float>(group->rank() + 1);
      group->all_reduce(floats(*memory));
      group->barrier();
    }
    const float sum = floats(*memory)[5];
    const int ranks = world_size_from_environment();
    require(sum == static_cast<float>(ranks * (ranks + 1) / 2), "the memory lost its content with its group");
    std::memset(memory->data(), 1, memory->size());
  }
  nothing.check();
  return 0;
}

TEST(RegisteredMemoryOfProcesses, OutlivesItsGroup) {
  ProcessSet ranks = start_ranks(3, "memory_outlives_group");
  expect_success(ranks);
}

// Registered memory of one group is private memory to another.
LOCKSTEP_PROCESS_ROLE(memory_of_another_group) {
  const NothingLeftBehind nothing;
  {
    const auto world = join_world();
    const auto memory = world->allocate(1 << 20);
    const auto other = world->split(0);
    const auto data = floats(*memory);
    std::fill(data.begin(), data.end(), 2.0F);
    other->all_reduce(data);
    require(data.back() == 2.0F * static_cast<float>(world->size()), "a wrong sum");
    world->all_reduce(data);
    require(data.back() == 2.0F * static_cast<float>(world->size() * world->size()), "a wrong sum");
  }
  nothing.check();
  return 0;
}

TEST(RegisteredMemoryOfProcesses, IsPrivateMemoryToAnotherGroup) {
  ProcessSet ranks = start_ranks(3, "memory_of_another_group");
  expect_success(ranks);
}

}  // namespace
}  // namespace lockstep::testing
