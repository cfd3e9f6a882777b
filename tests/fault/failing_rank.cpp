#include "fault/failing_rank.h"

#include <algorithm>
#include <iostream>

namespace lockstep::testing {
namespace {

using Clock = Deadline::Clock;
constexpr const char* kFailureMark = "the group failed at ";

}  // namespace

Environment variables_for(Wire wire, int rank) {
  if (wire == Wire::host) return {};
  return {{"LOCKSTEP_HOST_ID", fmt::format("host-{}", rank)}};
}

Status error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.status();
  }
  return {};
}

void report_failure(const Status& failure) {
  print_mark(fmt::format("{}{}: {}", kFailureMark, Clock::now().time_since_epoch().count(), failure.to_string()));
}

int run_until_failure(const CommunicatorOptions& options, const std::function<void(Communicator&)>& body) {
  const NothingLeftBehind nothing;
  {
    auto group = Communicator::create({.group = options});
    print_mark("joined");
    const Status failure = error_of([&] { body(*group); });
    require(!failure.ok(), "the body ended without an error");
    report_failure(failure);

    const auto before = Clock::now();
    const Status later = error_of([&] { group->barrier(); });
    require(later.code() == failure.code(), "a later call reports another error: " + later.to_string());
    require(group->health().code() == failure.code(), "health() reports another error: " + group->health().to_string());
    require(Clock::now() - before < std::chrono::seconds(3), "a later call of a failed group took long");
    group.reset();
    require(Clock::now() - before < std::chrono::seconds(6), "a failed group took long to be destroyed");
  }
  nothing.check();
  return 0;
}

Failure await_failure(ProcessSet& ranks, int rank, double seconds) {
  if (!ranks.wait_for_line(rank, kFailureMark, in_seconds(seconds))) {
    ADD_FAILURE() << "rank " << rank << " reports no failure within " << seconds << " s\n" << ranks.report();
    return {};
  }
  const std::string output = ranks.output(rank);
  const auto begin = output.find(kFailureMark) + std::string(kFailureMark).size();
  const auto colon = output.find(": ", begin);
  const auto nanoseconds = std::stoll(output.substr(begin, colon - begin));
  // Both processes read the machine's monotonic clock.
  return {Clock::time_point(Clock::duration(nanoseconds)),
          output.substr(colon + 2, output.find('\n', colon) - colon - 2)};
}

::testing::Matcher<std::string> NamesRank(int rank, pid_t pid) {
  return ::testing::ContainsRegex(fmt::format("rank {} \\(host [^ ,]+, pid {}\\)", rank, pid));
}

StallWatch::StallWatch()
    : thread_([this] {
        constexpr auto kNap = std::chrono::milliseconds(2);
        for (auto before = Clock::now(); !stop_;) {
          std::this_thread::sleep_for(kNap);
          const auto now = Clock::now();
          longest_ = std::max(longest_.load(), std::chrono::duration<double>(now - before - kNap).count());
          before = now;
        }
      }) {}

StallWatch::~StallWatch() {
  stop_ = true;
  thread_.join();
}

void report_detection(const std::string& what, const StallWatch& watch, const std::vector<Failure>& failures,
                      double limit_seconds) {
  double latest = 0;
  for (const auto& failure : failures) {
    latest = std::max(latest, std::chrono::duration<double>(failure.when - watch.start()).count());
  }
  const double stall = watch.longest_seconds();
  std::cout << fmt::format("[ detected ] {}: after {:.1f} ms (the machine stalled for {:.1f} ms)\n", what,
                           latest * 1000, stall * 1000);
  EXPECT_LE(latest, limit_seconds + stall) << what;
}

}  // namespace lockstep::testing
