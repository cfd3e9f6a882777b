// A user's first program: it needs the headers, the library, and nothing else.
#include <lockstep/engine.h>

#include <array>
#include <cstdio>
#include <span>

int main() {
  auto group = lockstep::Communicator::create_threads(1).front();
  std::array<float, 4> data = {1, 2, 3, 4};
  group->all_reduce(std::span(data), {.op = lockstep::ReduceOp::avg});
  if (data[3] != 4) return 1;
  try {
    group->broadcast(std::span(data), /*root=*/7);
  } catch (const lockstep::Error& error) {
    std::printf("lockstep %s refused root 7: %s\n", LOCKSTEP_VERSION, error.what());
    return 0;
  }
  return 1;
}
