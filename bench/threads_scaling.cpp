#include "bench/threads_scaling.h"

#include <fmt/format.h>
#include <time.h>

#include <barrier>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/driver/machine.h"
#include "bench/driver/statistics.h"
#include "bench/worker/pattern.h"
#include "bench/worker/start_line.h"
#include "lockstep/communicator/communicator.h"

namespace lockstep::bench {
namespace {

constexpr std::size_t kSmall = std::size_t{4} << 10;
constexpr std::size_t kLarge = std::size_t{25} << 20;

double process_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct Point {
  double seconds = 0;             // per operation, median of the rounds
  double cpu_seconds_per_gb = 0;  // likewise
  std::uint64_t wrong = 0;
};

// In each round every rank runs one all-reduce that is checked, then `operations` back to back on
// its buffer of `bytes`, which are timed together.
class ThreadsRun {
 public:
  ThreadsRun(int ranks, std::size_t bytes, int operations, int rounds)
      : bytes_(bytes),
        operations_(operations),
        rounds_(rounds),
        groups_(Communicator::create_threads(ranks)),
        pattern_(DType::f32, ranks),
        line_(ranks) {}

  Point run() {
    std::vector<std::thread> threads;
    for (const auto& group : groups_) threads.emplace_back([this, &group] { run_rank_safely(*group); });
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
    return {median(seconds_), median(cpu_), wrong_};
  }

 private:
  void run_rank_safely(Communicator& group) {
    try {
      run_rank(group);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
      }
      group.abort(error.what());
      line_.arrive_and_drop();
    }
  }

  void run_rank(Communicator& group) {
    const auto memory = group.allocate(bytes_);
    const Buffer buffer(memory->data(), bytes_ / sizeof(float), DType::f32);
    for (int round = 0; round < rounds_; ++round) {
      check_one(group, buffer, static_cast<std::uint64_t>(round));
      line_.arrive_and_wait();
      const std::int64_t start = now_ns();
      const double cpu_before = process_cpu_seconds();
      line_.arrive_and_wait();
      // avg, so that values stay as they are from one operation to the next.
      for (int i = 0; i < operations_; ++i) group.all_reduce(buffer, {.op = ReduceOp::avg});
      line_.arrive_and_wait();
      if (group.rank() == 0) record(now_ns() - start, process_cpu_seconds() - cpu_before);
    }
  }

  void check_one(Communicator& group, Buffer buffer, std::uint64_t iteration) {
    pattern_.fill(buffer.data, 0, buffer.count, group.rank(), iteration);
    group.all_reduce(buffer);
    const std::uint64_t wrong = pattern_.wrong_sums(buffer.data, 0, buffer.count, iteration);
    const std::lock_guard lock(mutex_);
    wrong_ += wrong;
  }

  void record(std::int64_t nanoseconds, double cpu_seconds) {
    const std::lock_guard lock(mutex_);
    seconds_.push_back(static_cast<double>(nanoseconds) * 1e-9 / operations_);
    cpu_.push_back(cpu_seconds / (static_cast<double>(bytes_) * 1e-9 * operations_));
  }

  std::size_t bytes_;
  int operations_;
  int rounds_;
  std::vector<std::shared_ptr<Communicator>> groups_;
  Pattern pattern_;
  std::barrier<> line_;
  std::mutex mutex_;  // guards what follows
  std::exception_ptr failure_;
  std::vector<double> seconds_;
  std::vector<double> cpu_;
  std::uint64_t wrong_ = 0;
};

void print_line(int ranks, const Point& small, const Point& large, double small_two, double large_two) {
  fmt::print("| {} | {:.1f} us | {:.1f} | {:.3f} | {:.2f} ms | {:.1f} | {:.3f} |\n", ranks, small.seconds * 1e6,
             small.seconds / small_two, small.cpu_seconds_per_gb, large.seconds * 1e3, large.seconds / large_two,
             large.cpu_seconds_per_gb);
  std::fflush(stdout);
}

}  // namespace

int run_threads_scaling(const ThreadsOptions& options) {
  if (options.max_ranks < 2 || options.max_ranks > 256 || options.rounds < 1) {
    fmt::print(stderr, "lockstep bench threads: --max-ranks must be 2 to 256 and --rounds at least 1\n");
    return 2;
  }
  fmt::print("All-reduce of f32 between threads of one process, registered memory, {}, medians of {} rounds.\n\n",
             describe_machine(), options.rounds);
  fmt::print("| ranks | 4 KiB | relative to 2 ranks | CPU s/GB | 25 MiB | relative to 2 ranks | CPU s/GB |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  std::uint64_t wrong = 0;
  double small_two = 0;
  double large_two = 0;
  try {
    for (int ranks = 2; ranks <= options.max_ranks; ranks *= 2) {
      const Point small = ThreadsRun(ranks, kSmall, 500, options.rounds).run();
      const Point large = ThreadsRun(ranks, kLarge, 5, options.rounds).run();
      if (ranks == 2) {
        small_two = small.seconds;
        large_two = large.seconds;
      }
      print_line(ranks, small, large, small_two, large_two);
      wrong += small.wrong + large.wrong;
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep bench threads: {}\n", error.what());
    return 1;
  }
  if (wrong > 0) fmt::print(stderr, "lockstep bench threads: {} elements were wrong\n", wrong);
  return wrong > 0 ? 1 : 0;
}

}  // namespace lockstep::bench
