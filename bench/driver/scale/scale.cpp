#include "bench/driver/scale/scale.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/driver/machine.h"
#include "bench/driver/process.h"
#include "bench/worker/scale_result.h"
#include "bench/worker/start_line.h"
#include "store/tcp/tcp_store_server.h"

namespace lockstep::bench {
namespace {

constexpr int kLongestRun = 300;  // seconds

// The file in which the ranks write their results, as mapped here.
class Results {
 public:
  Results(const std::string& path, int ranks) : bytes_(sizeof(ScaleResult) * static_cast<std::size_t>(ranks)) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void* memory = MAP_FAILED;
    if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes_)) == 0) {
      memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    const int error = errno;
    if (fd >= 0) ::close(fd);
    if (memory == MAP_FAILED) throw BenchError(fmt::format("cannot create {}: {}", path, std::strerror(error)));
    ranks_ = {static_cast<ScaleResult*>(memory), static_cast<std::size_t>(ranks)};
  }
  ~Results() { ::munmap(ranks_.data(), bytes_); }
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  std::span<const ScaleResult> ranks() const { return ranks_; }

 private:
  std::size_t bytes_;
  std::span<ScaleResult> ranks_;
};

double largest(std::span<const ScaleResult> ranks, const std::function<double(const ScaleResult&)>& value) {
  double result = 0;
  for (const auto& rank : ranks) result = std::max(result, value(rank));
  return result;
}

double sum(std::span<const ScaleResult> ranks, const std::function<double(const ScaleResult&)>& value) {
  double result = 0;
  for (const auto& rank : ranks) result += value(rank);
  return result;
}

std::vector<std::string> environment_of(int rank, int ranks, const ScaleOptions& options, int port,
                                        const std::string& results) {
  std::vector<std::string> environment = {fmt::format("RANK={}", rank),
                                          fmt::format("WORLD_SIZE={}", ranks),
                                          "MASTER_ADDR=127.0.0.1",
                                          fmt::format("MASTER_PORT={}", port),
                                          "LOCKSTEP_STORE_IS_SERVED=1",
                                          fmt::format("{}={}", kScaleResults, results),
                                          fmt::format("{}={}", kScaleIdle, options.idle_seconds)};
  if (options.ranks_per_host > 0) {
    environment.push_back(fmt::format("LOCKSTEP_HOST_ID=host{}", rank / options.ranks_per_host));
  }
  return environment;
}

void print_row(int ranks, std::int64_t started_at, std::span<const ScaleResult> results, int idle_seconds) {
  const double entered = largest(results, [](const auto& rank) { return static_cast<double>(rank.entered_at); });
  const double formed = largest(results, [](const auto& rank) { return static_cast<double>(rank.formed_at); });
  const double idle = sum(results, [](const auto& rank) { return static_cast<double>(rank.idle_cpu_ns); });
  const double memory = sum(results, [](const auto& rank) { return static_cast<double>(rank.memory_bytes); });
  const auto& victim = results[static_cast<std::size_t>(scale_victim(ranks))];
  const double named = largest(results, [](const auto& rank) { return static_cast<double>(rank.named_at); });
  const auto naming = static_cast<int>(sum(results, [](const auto& rank) { return static_cast<double>(rank.named); }));
  const auto most = [&](auto member) {
    return largest(results, [member](const auto& rank) { return static_cast<double>(rank.*member); });
  };
  fmt::print(
      "| {} | {:.2f} s | {:.2f} s | {:.0f} ms | {} / {:.0f} | {} / {:.0f} | {:.1f} MiB | {:.2f} % | {:.2f} ms | "
      "{:.0f} ms | {:.2f} s, {} of {} |\n",
      ranks, (entered - static_cast<double>(started_at)) * 1e-9, (formed - entered) * 1e-9,
      most(&ScaleResult::first_ns) * 1e-6, results.back().sockets, most(&ScaleResult::sockets),
      results.back().descriptors, most(&ScaleResult::descriptors), memory / ranks / (1 << 20),
      idle * 1e-7 / std::max(1, idle_seconds), most(&ScaleResult::small_ns) * 1e-6, most(&ScaleResult::large_ns) * 1e-6,
      (named - static_cast<double>(victim.killed_at.load())) * 1e-9, naming, ranks - 1);
  std::fflush(stdout);
}

void run_size(int ranks, const ScaleOptions& options) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/results";
  const Results results(path, ranks);
  const auto server = value_or_throw(TcpStoreServer::start({}));
  const std::string program = worker_folder() + "/lockstep-bench-scale";
  const std::int64_t started_at = now_ns();
  std::vector<ChildProcess> children;
  children.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    check_interrupted();
    children.emplace_back(std::vector{program}, environment_of(rank, ranks, options, server->port(), path),
                          folder.path() + "/output");
  }
  for (auto& child : children) {
    while (!child.wait_for_end(1000)) {
      check_interrupted();
      if (now_ns() - started_at > std::int64_t{kLongestRun} * 1'000'000'000) {
        throw BenchError(fmt::format("{} ranks did not end within {} s", ranks, kLongestRun));
      }
    }
  }
  for (const auto& rank : results.ranks()) {
    if (rank.large_ns == 0)
      throw BenchError(fmt::format("{} ranks failed; their output:\n{}", ranks,
                                   run_or_throw({"head", "-c", "4000", folder.path() + "/output"})));
  }
  print_row(ranks, started_at, results.ranks(), options.idle_seconds);
}

// One rank of a host has a link to each of the others.
void allow_many_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int run_scale_benchmark(const ScaleOptions& options) {
  if (options.min_ranks < 2 || options.max_ranks > 4096 || options.min_ranks > options.max_ranks ||
      options.ranks_per_host < 0 || options.idle_seconds < 0) {
    fmt::print(stderr, "lockstep bench scale: ranks must be from 2 to 4096, and other numbers not negative\n");
    return 2;
  }
  allow_many_descriptors();
  fmt::print(
      "Ranks as processes of {}, {}. Sockets and descriptors: of the last rank / the most that any rank has. "
      "Idle: all ranks together, in percent of one core. Killed: until the last rank had the error, and how many "
      "named the rank.\n\n",
      describe_machine(),
      options.ranks_per_host == 0 ? "all on one host" : fmt::format("as hosts of {}", options.ranks_per_host));
  fmt::print(
      "| ranks | start of processes | forming | first barrier | sockets | descriptors | memory per rank | idle | "
      "4 KiB | 4 MiB | killed |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
  try {
    const InterruptGuard guard;
    for (int ranks = options.min_ranks; ranks <= options.max_ranks; ranks *= 2) run_size(ranks, options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep bench scale: {}\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace lockstep::bench
