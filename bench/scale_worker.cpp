// One rank of `lockstep bench scale`.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/worker/scale_result.h"
#include "bench/worker/start_line.h"
#include "lockstep/communicator/communicator.h"

namespace lockstep::bench {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

ScaleResult* map_results(int rank, int ranks) {
  const int fd = ::open(variable(kScaleResults).c_str(), O_RDWR | O_CLOEXEC);
  void* memory =
      ::mmap(nullptr, sizeof(ScaleResult) * static_cast<std::size_t>(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<ScaleResult*>(memory) + rank;
}

void count_descriptors(ScaleResult& result) {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder)) {
    char target[32] = {};
    if (::readlinkat(::dirfd(folder), entry->d_name, target, sizeof(target) - 1) <= 0) continue;
    ++result.descriptors;
    if (std::string_view(target).starts_with("socket:")) ++result.sockets;
  }
  ::closedir(folder);
  --result.descriptors;  // the folder itself
}

std::int64_t memory_share() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    if (word != "Pss:") continue;
    std::int64_t kibibytes = 0;
    file >> kibibytes;
    return kibibytes << 10;
  }
  return 0;
}

std::int64_t cpu_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
}

std::int64_t all_reduce_ns(Communicator& group, std::size_t bytes, int operations) {
  std::vector<float> values(bytes / sizeof(float), 1.0F);
  std::vector<std::int64_t> times;
  for (int i = 0; i <= operations; ++i) {
    const auto start = now_ns();
    group.all_reduce(Buffer(std::span(values)), {.op = ReduceOp::max});
    if (i > 0) times.push_back(now_ns() - start);
  }
  std::nth_element(times.begin(), times.begin() + operations / 2, times.end());
  return times[static_cast<std::size_t>(operations) / 2];
}

void lose_a_rank(Communicator& group, ScaleResult& result) {
  const int victim = scale_victim(group.size());
  group.barrier();
  if (group.rank() == victim) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until the others wait
    result.killed_at = now_ns();
    ::kill(::getpid(), SIGKILL);
  }
  try {
    group.barrier();
  } catch (const std::exception& error) {
    result.named_at = now_ns();
    result.named = std::string_view(error.what()).find("rank " + std::to_string(victim) + " ") != std::string::npos;
    if (result.named == 0) std::fprintf(stderr, "rank %d: %s\n", group.rank(), error.what());
  }
}

int run() {
  const int rank = std::atoi(variable("RANK").c_str());
  const int ranks = std::atoi(variable("WORLD_SIZE").c_str());
  ScaleResult* result = map_results(rank, ranks);
  if (result == nullptr) return 2;
  result->entered_at = now_ns();
  InitOptions options;
  options.group.init_timeout = std::chrono::minutes(3);
  const auto group = Communicator::create(options);
  result->formed_at = now_ns();
  group->barrier();
  result->first_ns = now_ns() - result->formed_at;

  const std::int64_t before = cpu_ns();
  std::this_thread::sleep_for(std::chrono::seconds(std::atoi(variable(kScaleIdle).c_str())));
  result->idle_cpu_ns = cpu_ns() - before;
  group->barrier();
  result->small_ns = all_reduce_ns(*group, 4 << 10, 20);
  result->large_ns = all_reduce_ns(*group, 4 << 20, 3);
  count_descriptors(*result);
  result->memory_bytes = memory_share();
  lose_a_rank(*group, *result);
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main() {
  try {
    return lockstep::bench::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %s: %s\n", std::getenv("RANK"), error.what());
    return 1;
  }
}
