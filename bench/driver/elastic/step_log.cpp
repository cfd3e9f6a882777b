#include "bench/driver/elastic/step_log.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/driver/statistics.h"

namespace lockstep::bench {
namespace {

double seconds_between(std::int64_t from, std::int64_t to) { return static_cast<double>(to - from) / 1e9; }

// Over the steps of one rank, so that no step counts twice.
double median_step(const StepLog& log, std::int64_t generation, std::int64_t until) {
  std::vector<std::int64_t> times;
  for (const Step& step : log.steps) {
    if (step.generation == generation && step.rank == 0 && step.time <= until) times.push_back(step.time);
  }
  std::sort(times.begin(), times.end());
  std::vector<double> lengths;
  for (std::size_t i = 1; i < times.size(); ++i) lengths.push_back(seconds_between(times[i - 1], times[i]));
  return lengths.empty() ? 0 : median(lengths);
}

std::optional<Aftermath::Replacement> find_replacement(const StepLog& log, std::int64_t kill_time) {
  std::map<pid_t, const Entered*> newcomers;
  for (const Entered& one : log.entered) {
    if (one.time > kill_time) newcomers[one.pid] = &one;
  }
  std::optional<Aftermath::Replacement> first;
  for (const Step& step : log.steps) {
    const auto newcomer = newcomers.find(step.pid);
    if (newcomer == newcomers.end()) continue;
    const double trained = seconds_between(kill_time, step.time);
    if (first && first->trained <= trained) continue;
    first = {.started = seconds_between(kill_time, newcomer->second->process_start),
             .entered = seconds_between(kill_time, newcomer->second->time),
             .trained = trained};
  }
  return first;
}

}  // namespace

void StepLog::add_line(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::string kind;
  words >> kind;
  if (kind == "enter") {
    Entered one;
    if (words >> one.time >> one.pid >> one.process_start) entered.push_back(one);
  } else if (kind == "step") {
    Step one;
    if (words >> one.step >> one.time >> one.pid >> one.generation >> one.rank >> one.ranks) steps.push_back(one);
  } else if (kind == "pair") {
    TimedPair one;
    if (words >> one.number >> one.with_commit >> one.without >> one.commit) pairs.push_back(one);
  }
}

StepLog StepLog::read(const std::string& folder) {
  StepLog log;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) log.add_line(line);
  }
  return log;
}

std::int64_t StepLog::newest_generation() const {
  std::int64_t newest = 0;
  for (const Step& step : steps) newest = std::max(newest, step.generation);
  return newest;
}

std::map<int, pid_t> StepLog::newest_ranks() const {
  std::map<int, pid_t> ranks;
  const std::int64_t newest = newest_generation();
  for (const Step& step : steps) {
    if (step.generation == newest) ranks[step.rank] = step.pid;
  }
  return ranks;
}

int StepLog::steps_of(pid_t pid) const {
  return static_cast<int>(
      std::count_if(steps.begin(), steps.end(), [pid](const Step& step) { return step.pid == pid; }));
}

std::optional<Aftermath> aftermath_of(const StepLog& log, std::int64_t kill_time) {
  std::int64_t last_step = 0, generation = 0;
  for (const Step& step : log.steps) {
    if (step.time > kill_time) continue;
    last_step = std::max(last_step, step.step);
    generation = std::max(generation, step.generation);
  }
  std::optional<std::int64_t> next;
  for (const Step& step : log.steps) {
    if (step.generation > generation && step.step > last_step) next = std::min(next.value_or(step.time), step.time);
  }
  if (!next) return std::nullopt;
  return Aftermath{.step_seconds = median_step(log, generation, kill_time),
                   .next_step = seconds_between(kill_time, *next),
                   .replacement = find_replacement(log, kill_time)};
}

std::optional<CommitCost> commit_cost(const StepLog& log) {
  struct Extremes {
    double with = 0, without = 0, first = 0, last = 0;
  };
  std::map<int, Extremes> pairs;
  for (const TimedPair& pair : log.pairs) {
    const bool seen = pairs.contains(pair.number);
    Extremes& one = pairs[pair.number];
    one.with = std::max(one.with, pair.with_commit);
    one.without = std::max(one.without, pair.without);
    one.first = std::max(one.first, pair.commit);
    one.last = seen ? std::min(one.last, pair.commit) : pair.commit;
  }
  if (pairs.empty()) return std::nullopt;
  CommitCost cost;
  std::vector<double> first, last;
  for (const auto& [number, one] : pairs) {
    cost.with.push_back(one.with / 1e9);
    cost.without.push_back(one.without / 1e9);
    first.push_back(one.first / 1e9);
    last.push_back(one.last / 1e9);
  }
  cost.step_seconds = median(cost.without);
  cost.commit_seconds = median(last);
  cost.waiting_seconds = median(first);
  cost.share = cost.commit_seconds / cost.step_seconds;
  return cost;
}

}  // namespace lockstep::bench
