// lockstep ps, lockstep dump and lockstep trace: look at jobs that run on this machine, through what their ranks
// record. They disturb neither the launcher nor the ranks, except that a debugger stops a rank while dump takes its
// stacks.
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <memory>

#include "cli/command.h"
#include "cli/job_summary.h"
#include "launch/report/job_dump.h"
#include "record/running_jobs.h"
#include "record/trace.h"

namespace lockstep::cli {
namespace {

int fail(const char* command, const Status& status) {
  fmt::print(stderr, "lockstep {}: {}\n", command, status.message());
  return 2;
}

int list_jobs() {
  for (const auto& job : record::find_running_jobs()) {
    const auto ranks = job.read();
    fmt::print("{:>8}  {:>3} ranks  {}  {}\n", job.launcher, ranks.size(), progress_of(ranks), job.command);
  }
  return 0;
}

struct DumpOptions {
  std::string pid;
  bool stacks = true;
  double limit = 5;
};

int dump(const DumpOptions& options) {
  const auto job = record::find_running_job(options.pid);
  if (!job.ok()) return fail("dump", job.status());
  const auto ranks = job->read();
  const std::int64_t now = now_ns();
  fmt::print("{} (pid {}): {}\n", job->command, job->launcher, progress_of(ranks));
  for (const std::string& sentence : record::describe_missing(ranks, now)) fmt::print("{}\n", sentence);
  const auto described = launch::describe_ranks(ranks, now);
  for (const auto& rank : described) fmt::print("{}\n", rank.text);
  if (const StragglerReport report = compare_ranks(ranks); report.steps > 0) fmt::print("{}\n", report.to_string());
  if (!options.stacks) return 0;
  const launch::StackOptions limits{.limit = std::chrono::milliseconds(static_cast<std::int64_t>(options.limit * 1e3))};
  for (const auto& rank : described) {
    fmt::print("\n{}", launch::dump_rank(rank, limits));
    std::fflush(stdout);
  }
  return 0;
}

int write_trace(const std::string& pid, double last_seconds, const std::string& path) {
  const auto job = record::find_running_job(pid);
  if (!job.ok()) return fail("trace", job.status());
  std::vector<record::TracedRank> ranks;
  for (auto& rank : job->read()) ranks.push_back({.record = std::move(rank)});
  const std::int64_t now = now_ns();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << record::trace_json(ranks, {.now_ns = now, .from_ns = now - static_cast<std::int64_t>(last_seconds * 1e9)});
  if (!file.flush()) return fail("trace", Status(StatusCode::invalid_argument, fmt::format("cannot write '{}'", path)));
  return 0;
}

void add_job(CLI::App* command, std::string& pid) {
  command->add_option("JOB", pid,
                      "pid of its lockstep run, as lockstep ps prints it; may be omitted if there is only one");
}

}  // namespace

void add_ps_command(CLI::App& app, Action& chosen) {
  CLI::App* const command = app.add_subcommand("ps", "List the jobs of this user on this machine");
  command->callback([&chosen] { chosen = list_jobs; });
}

void add_dump_command(CLI::App& app, Action& chosen) {
  CLI::App* const command = app.add_subcommand(
      "dump", "Print what each rank of a running job does, which rank is late, and the stacks of all threads");
  const auto options = std::make_shared<DumpOptions>();
  add_job(command, options->pid);
  command->add_flag("!--no-stacks", options->stacks,
                    "Without stacks, for which a debugger stops each rank for a moment");
  command->add_option("--limit", options->limit, "Seconds for which a rank may be stopped")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->callback([&chosen, options] { chosen = [options] { return dump(*options); }; });
}

void add_trace_command(CLI::App& app, Action& chosen) {
  CLI::App* const command = app.add_subcommand("trace", "Write a timeline of a running job, for Perfetto");
  struct Options {
    std::string pid;
    double last = 30;
    std::string path = "trace.json";
  };
  const auto options = std::make_shared<Options>();
  add_job(command, options->pid);
  command->add_option("--last", options->last, "how far back, in seconds; at most what the ranks still have")
      ->transform([](std::string text) {  // "30s"
        if (!text.empty() && text.back() == 's') text.pop_back();
        return text;
      })
      ->capture_default_str();
  command->add_option("--output", options->path, "file to write")->capture_default_str();
  command->callback(
      [&chosen, options] { chosen = [options] { return write_trace(options->pid, options->last, options->path); }; });
}

}  // namespace lockstep::cli
