// A rank that sums rank + 1 over the world and prints the result. It does not depend on what started it.
#include <fmt/format.h>
#include <lockstep/communicator/communicator.h>

#include <chrono>
#include <cstdio>
#include <exception>

int main() {
  try {
    const auto group = lockstep::Communicator::create({.group = {.init_timeout = std::chrono::seconds(30)}});
    double sum = group->rank() + 1.0;
    group->all_reduce(std::span(&sum, 1));
    // One write, so that the lines of several ranks do not mix.
    const auto line = fmt::format("rank {} of {}: sum {}\n", group->rank(), group->size(), sum);
    std::fwrite(line.data(), 1, line.size(), stdout);
    return 0;
  } catch (const std::exception& error) {
    const auto line = fmt::format("{}\n", error.what());
    std::fwrite(line.data(), 1, line.size(), stderr);
    return 1;
  }
}
