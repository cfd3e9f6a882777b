#include "bench/driver/elastic/elastic_job.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/base/deadline.h"

namespace lockstep::bench {
namespace {

constexpr auto kTimeout = std::chrono::minutes(3);
constexpr int kPollMs = 10;
constexpr std::size_t kOutputShown = 4000;

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void pause() { ::poll(nullptr, 0, kPollMs); }

}  // namespace

std::int64_t monotonic_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

TrainingJob::TrainingJob(std::string name, const std::string& folder, const std::vector<Launcher>& launchers)
    : name_(std::move(name)), folder_(folder) {
  std::filesystem::create_directories(steps_folder(folder_));
  for (const Launcher& launcher : launchers) {
    launchers_.emplace_back(launcher.command, launcher.environment, folder_ + "/output");
  }
}

TrainingJob::~TrainingJob() {
  launchers_.clear();
  // The launchers end their ranks. A rank that is left would disturb the measurement of the next job, so it is killed.
  std::set<pid_t> pids;
  for (const Entered& one : log().entered) pids.insert(one.pid);
  const Deadline deadline = Deadline::after(std::chrono::seconds(5));
  const auto left = [&] { return std::any_of(pids.begin(), pids.end(), [&](pid_t p) { return belongs_to_job(p); }); };
  while (left() && !deadline.expired()) pause();
  for (const pid_t pid : pids) {
    if (belongs_to_job(pid)) ::kill(pid, SIGKILL);
  }
}

// Checks that the command line names the job's folder: the pid may have been reused.
bool TrainingJob::belongs_to_job(pid_t pid) const {
  return read_all(fmt::format("/proc/{}/cmdline", pid)).find(steps_folder(folder_)) != std::string::npos;
}

void TrainingJob::check(const Deadline& deadline, const std::string& waiting_for) {
  check_interrupted();
  const bool ended = std::any_of(launchers_.begin() + (first_was_killed_ ? 1 : 0), launchers_.end(),
                                 [](ChildProcess& one) { return one.ended(); });
  if (!ended && !deadline.expired()) return;
  fail(fmt::format("{} while waiting for {}", ended ? "ended" : "took too long", waiting_for));
}

void TrainingJob::fail(const std::string& what) const {
  std::string written = read_all(folder_ + "/output");
  if (written.size() > kOutputShown) written = "..." + written.substr(written.size() - kOutputShown);
  throw BenchError(fmt::format("{}: the job {}; its output:\n{}", name_, what, written));
}

void TrainingJob::wait_for_training(int ranks, int steps) {
  const Deadline deadline = Deadline::after(kTimeout);
  while (true) {
    const StepLog log = this->log();
    const std::map<int, pid_t> training = log.newest_ranks();
    const bool all = std::all_of(training.begin(), training.end(),
                                 [&](const auto& rank) { return log.steps_of(rank.second) >= steps; });
    if (all && static_cast<int>(training.size()) == ranks) return;
    check(deadline, fmt::format("{} ranks to train", ranks));
    pause();
  }
}

void TrainingJob::wait_for_end() {
  const Deadline deadline = Deadline::after(kTimeout);
  const auto runs = [](ChildProcess& one) { return !one.ended(); };
  while (std::any_of(launchers_.begin(), launchers_.end(), runs)) {
    check_interrupted();
    if (deadline.expired()) fail("took too long");
    pause();
  }
}

std::int64_t TrainingJob::kill(const std::set<int>& ranks, bool first_launcher) {
  const std::map<int, pid_t> training = log().newest_ranks();
  std::vector<pid_t> victims;
  for (const int rank : ranks) {
    const auto found = training.find(rank);
    if (found == training.end() || !belongs_to_job(found->second)) {
      throw BenchError(fmt::format("{}: rank {} is not running", name_, rank));
    }
    victims.push_back(found->second);
  }
  const std::int64_t time = monotonic_ns();
  if (first_launcher) ::kill(launchers_.front().pid(), SIGKILL);
  first_was_killed_ = first_launcher;
  for (const pid_t pid : victims) ::kill(pid, SIGKILL);
  return time;
}

Aftermath TrainingJob::wait_for_aftermath(std::int64_t kill_time, bool with_replacement) {
  const Deadline deadline = Deadline::after(kTimeout);
  while (true) {
    const auto aftermath = aftermath_of(log(), kill_time);
    if (aftermath && (aftermath->replacement || !with_replacement)) return *aftermath;
    check(deadline, aftermath ? "the replacement to train" : "the next step after the kill");
    pause();
  }
}

}  // namespace lockstep::bench
