#include "launch/report/failure.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string.h>

#include <algorithm>
#include <csignal>
#include <ctime>

#include "base/printable.h"
#include "launch/report/crash_text.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kTailLines = 20;
constexpr std::int64_t kSameEndNs = 5'000'000'000;

std::string clock_time(std::int64_t time_ns) {
  const std::time_t seconds = time_ns / 1'000'000'000;
  std::tm local{};
  ::localtime_r(&seconds, &local);
  return fmt::format("{:%H:%M:%S}.{:03}", local, time_ns / 1'000'000 % 1000);
}

// ", 3.2 s after its start", if that is known.
std::string after_start(const RankEnd& end) {
  return end.uptime_seconds > 0 ? fmt::format(", {:.1f} s after its start", end.uptime_seconds) : "";
}

int number_of(const RankFailure& failure) { return failure.rank < 0 ? failure.local_rank : failure.rank; }

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// What a signal or exit code usually means.
const char* hint_for(const RankFailure& failure) {
  if (failure.signal == SIGKILL)
    return "killed from outside: by kill -9, or by the kernel when memory ran out (see dmesg)";
  if (failure.signal == SIGTERM || failure.signal == SIGINT) return "stopped from outside, not by the launcher";
  if (failure.exit_code == 127) return "by convention: a program or a shared library was not found";
  return "";
}

// `as_is`: what the rank itself has written to the terminal.
void add_block(std::string& report, const char* title, const std::string& text, bool as_is = false) {
  std::string_view label = title;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    report += fmt::format("  {:<9}{}\n", label, as_is ? line : printable_line(line));
    label = "";
    start = end + 1;
  }
}

void add_reason(std::string& report, const RankEnd& end) {
  const std::string why = !end.failure.reason.empty() ? end.failure.reason : hint_for(end.failure);
  if (!why.empty()) add_block(report, "why", why);
  const auto tail = last_lines(end.stderr_tail, kTailLines);
  if (!tail.empty()) add_block(report, "stderr", fmt::format("{}", fmt::join(tail, "\n")), true);
}

std::string describe_followers(const std::vector<const RankEnd*>& followers) {
  std::string text;
  for (const RankEnd* end : followers) {
    const std::string why = first_line(end->failure.reason);
    text += fmt::format("{}{} ({}){}", text.empty() ? "" : "\n", name_of(end->failure),
                        describe_end(end->failure.exit_code, end->failure.signal), why.empty() ? "" : ": " + why);
  }
  return text;
}

}  // namespace

bool is_consequence(const RankEnd& end) {
  if (end.success() || (end.failure.signal != 0 && end.failure.signal != SIGABRT)) return false;
  if (!end.failure.reason.empty()) return reports_lost_peer(end.failure.reason);
  return reports_lost_peer(fmt::format("{}", fmt::join(last_lines(end.stderr_tail, 10), "\n")));
}

RankEnd remote_end(const RankFailure& failure) {
  RankEnd end;
  end.failure = failure;
  end.consequence = is_consequence(end);
  return end;
}

std::string name_of(bool elastic, int number) { return fmt::format("{} {}", elastic ? "worker" : "rank", number); }

std::string name_of(const RankFailure& process) {
  return process.rank < 0 ? name_of(true, process.local_rank) : name_of(false, process.rank);
}

std::string describe_end(int exit_code, int signal) {
  if (signal == 0) return fmt::format("exit code {}", exit_code);
  const char* const name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("signal {} (SIG{})", signal, name) : fmt::format("signal {}", signal);
}

int exit_code_of(const RankFailure& failure) { return failure.signal != 0 ? 128 + failure.signal : failure.exit_code; }

const RankEnd* first_failure(const std::vector<RankEnd>& ends) {
  const RankEnd* first = nullptr;
  const auto before = [](const RankEnd& a, const RankEnd& b) {
    if (a.stopped != b.stopped) return b.stopped;
    if (a.consequence != b.consequence) return b.consequence;
    return a.failure.time_ns < b.failure.time_ns;
  };
  for (const RankEnd& end : ends) {
    if (!end.success() && (first == nullptr || before(end, *first))) first = &end;
  }
  return first;
}

std::vector<RankEnd> final_failures(const std::vector<RankEnd>& ends) {
  std::vector<RankEnd> latest_first = ends;
  std::stable_sort(latest_first.begin(), latest_first.end(),
                   [](const RankEnd& a, const RankEnd& b) { return a.failure.time_ns > b.failure.time_ns; });
  std::vector<RankEnd> last;
  for (const RankEnd& end : latest_first) {
    if (end.success()) break;
    if (!last.empty() && last.back().failure.time_ns - end.failure.time_ns > kSameEndNs) break;
    last.push_back(end);
  }
  return last;
}

std::string describe_rank_end(const RankEnd& end) {
  return fmt::format("{} (pid {} on {}) ended with {}{}", name_of(end.failure), end.failure.pid, end.failure.host,
                     describe_end(end.failure.exit_code, end.failure.signal), after_start(end));
}

std::string loss_report(const RankEnd& end) {
  std::string report = describe_rank_end(end) + "\n";
  add_reason(report, end);
  if (!end.failure.log.empty()) add_block(report, "its log", end.failure.log);
  report.pop_back();
  return report;
}

std::string rank_list(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (last > i) text += fmt::format("{}{}", last > i + 1 ? "-" : ", ", ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string failure_report(const RankEnd& first, const std::vector<RankEnd>& ends, const std::string& logs) {
  const RankFailure& failure = first.failure;
  std::string report =
      fmt::format("{} failed first, with {}\n", name_of(failure), describe_end(failure.exit_code, failure.signal));
  add_block(report, "where",
            fmt::format("{}, pid {}, local rank {} of node {}", failure.host, failure.pid, failure.local_rank,
                        failure.node_rank));
  add_block(report, "when", clock_time(failure.time_ns) + after_start(first));
  add_reason(report, first);

  const char* const noun = failure.rank < 0 ? "worker" : "rank";
  std::vector<const RankEnd*> followers;
  std::vector<int> stopped;
  std::vector<int> finished;
  for (const RankEnd& end : ends) {
    if (&end == &first || (end.failure.host == failure.host && end.failure.pid == failure.pid)) continue;
    if (end.stopped) {
      stopped.push_back(number_of(end.failure));
    } else if (end.success()) {
      finished.push_back(number_of(end.failure));
    } else {
      followers.push_back(&end);
    }
  }
  if (!followers.empty()) add_block(report, "then", describe_followers(followers));
  if (!stopped.empty()) add_block(report, "stopped", fmt::format("by the launcher: {} {}", noun, rank_list(stopped)));
  if (!finished.empty())
    add_block(report, "finished", fmt::format("before that, successfully: {} {}", noun, rank_list(finished)));
  if (!failure.log.empty()) add_block(report, "its log", failure.log);
  if (!logs.empty()) add_block(report, "all logs", logs);
  report.pop_back();
  return report;
}

}  // namespace lockstep::launch
