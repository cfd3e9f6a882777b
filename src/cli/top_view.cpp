#include "cli/top_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "cli/job_summary.h"
#include "lockstep/collectives/operation.h"
#include "record/running_jobs.h"

namespace lockstep::cli {
namespace {

constexpr const char* kBold = "\x1b[1m";
constexpr const char* kYellow = "\x1b[33m";
constexpr const char* kRed = "\x1b[31m";
constexpr const char* kPlain = "\x1b[0m";
// A wait that is worth a sentence: longer than this, and than a few steps.
constexpr double kLongSeconds = 1;
constexpr double kLongSteps = 5;

double seconds_since(std::int64_t then_ns, std::int64_t now_ns) {
  return static_cast<double>(std::max(now_ns, then_ns) - then_ns) * 1e-9;
}

std::string age(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

// The one that has run longest, of all groups.
const record::RecordedOperation* current_operation(const record::RankRecord& rank) {
  const record::RecordedOperation* found = nullptr;
  for (const auto& group : rank.groups) {
    if (group.operations.empty() || group.operations.back().outcome != record::Outcome::running) continue;
    if (found == nullptr || group.operations.back().started_ns < found->started_ns) found = &group.operations.back();
  }
  return found;
}

// Cuts at `columns` bytes, not within a character.
std::string cut(std::string line, std::size_t columns) {
  if (line.size() <= columns) return line;
  std::size_t end = columns;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
  line.resize(end);
  return line;
}

// At spaces, so that no line is longer than `columns`.
std::vector<std::string> wrap(const std::string& text, std::size_t columns) {
  std::vector<std::string> lines(1);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > columns) lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  for (std::string& line : lines) line = cut(std::move(line), columns);
  return lines;
}

// The longest wait, if it is longer than steps usually take.
const record::WaitingOperation* long_wait(const std::vector<record::WaitingOperation>& waiting,
                                          const JobPicture& picture) {
  const double usual = std::max(kLongSeconds, kLongSteps * median_step_seconds(picture.ranks));
  const record::WaitingOperation* longest = nullptr;
  for (const auto& one : waiting) {
    if (seconds_since(one.since_ns, picture.now_ns) < usual) continue;
    if (longest == nullptr || one.since_ns < longest->since_ns) longest = &one;
  }
  return longest;
}

std::string row(const record::RankRecord& rank, const JobPicture& picture) {
  std::string phase = rank.phase < 0 ? "-" : std::string(to_string(static_cast<PhaseKind>(rank.phase)));
  const std::string phase_age = rank.phase < 0 ? "" : age(seconds_since(rank.phase_since_ns, picture.now_ns));
  const auto* const operation = current_operation(rank);
  const std::string name =
      operation == nullptr
          ? "-"
          : fmt::format("{} #{}", to_string(static_cast<OperationKind>(operation->kind)), operation->sequence);
  const std::string operation_age =
      operation == nullptr ? "" : age(seconds_since(operation->started_ns, picture.now_ns));
  const auto usage = picture.usage.find(rank.pid);
  const bool ended = usage == picture.usage.end();
  const std::string cores = ended || usage->second.cores < 0 ? "-" : fmt::format("{:.0f}", usage->second.cores * 100);
  const std::string memory =
      ended ? "ended" : fmt::format("{:.2f} GiB", static_cast<double>(usage->second.resident_bytes) / (1 << 30));
  const std::string step = rank.steps.empty() ? "-" : fmt::to_string(rank.steps.back().number);
  return fmt::format("{:>4}  {:<12.12}  {:>7}  {:>8}  {:<13.13} {:>7}  {:<20.20} {:>7}  {:>5}  {:>9}", rank.rank,
                     rank.host, rank.pid, step, phase, phase_age, name, operation_age, cores, memory);
}

}  // namespace

std::string state_sentence(const JobPicture& picture) {
  if (picture.ranks.empty()) return "starting: no rank uses Lockstep yet";
  for (const auto& rank : picture.ranks) {
    if (!rank.failure.empty()) return fmt::format("failed: rank {}: {}", rank.rank, rank.failure);
  }
  const auto waiting = record::find_waiting(picture.ranks, picture.now_ns);
  if (const auto* const wait = long_wait(waiting, picture); wait != nullptr) {
    const std::string whom = wait->missing.empty()
                                 ? "has been reached by all ranks of this machine: it waits for other "
                                   "machines, or for the network"
                                 : fmt::format("waits for rank {}", fmt::join(wait->missing, ", "));
    return fmt::format("waiting for {}: {} {} ({})", age(seconds_since(wait->since_ns, picture.now_ns)), wait->name,
                       whom, progress_of(picture.ranks));
  }
  if (latest_step(picture.ranks) == 0) return "running: no step of a model yet";
  return "training: " + progress_of(picture.ranks);
}

std::vector<std::string> top_lines(const JobPicture& picture, const Screen& screen) {
  const auto coloured = [&](const char* colour, std::string text) {
    return screen.colour ? colour + std::move(text) + kPlain : std::move(text);
  };
  std::vector<std::string> lines;
  lines.push_back(coloured(kBold, cut(fmt::format("{} (pid {}), {} ranks on this machine", picture.command,
                                                  picture.launcher, picture.ranks.size()),
                                      screen.columns)));
  const auto waiting = record::find_waiting(picture.ranks, picture.now_ns);
  const auto* const wait = long_wait(waiting, picture);
  const std::string state = state_sentence(picture);
  const bool failed = state.starts_with("failed");
  for (const std::string& line : wrap(state, screen.columns)) {
    lines.push_back(failed || wait != nullptr ? coloured(failed ? kRed : kYellow, line) : line);
  }
  std::set<int> late;
  if (wait != nullptr) late.insert(wait->missing.begin(), wait->missing.end());
  if (const StragglerReport report = compare_ranks(picture.ranks); report.straggler) {
    for (const std::string& line : wrap(report.to_string(), screen.columns)) lines.push_back(coloured(kYellow, line));
    late.insert(report.straggler->rank);
  }
  lines.emplace_back();
  lines.push_back(
      coloured(kBold, cut(fmt::format("{:>4}  {:<12}  {:>7}  {:>8}  {:<13} {:>7}  {:<20} {:>7}  {:>5}  {:>9}", "rank",
                                      "host", "pid", "step", "phase", "for", "operation", "for", "cpu %", "memory"),
                          screen.columns)));
  std::vector<const record::RankRecord*> shown;
  for (const auto& rank : picture.ranks) shown.push_back(&rank);
  const std::size_t room = screen.rows == 0 ? shown.size() : screen.rows - std::min(screen.rows, lines.size());
  if (shown.size() > room) {
    std::stable_sort(shown.begin(), shown.end(),
                     [&](const auto* a, const auto* b) { return late.count(a->rank) > late.count(b->rank); });
    shown.resize(room > 0 ? room - 1 : 0);
  }
  for (const auto* rank : shown) {
    const std::string text = cut(row(*rank, picture), screen.columns);
    lines.push_back(!rank->failure.empty()       ? coloured(kRed, text)
                    : late.count(rank->rank) > 0 ? coloured(kYellow, text)
                                                 : text);
  }
  if (shown.size() < picture.ranks.size() && room > 0) {
    lines.push_back(cut(fmt::format("and {} more ranks, in a larger terminal", picture.ranks.size() - shown.size()),
                        screen.columns));
  }
  return lines;
}

}  // namespace lockstep::cli
