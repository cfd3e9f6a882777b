#include "launch/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <ctime>

#include "base/host_name.h"
#include "base/random.h"
#include "launch/options/core_binding.h"

namespace lockstep::launch {
namespace {

// torchrun's default "none" for several nodes, which must agree on the id without communicating.
std::string make_run_id(const RunOptions& options) {
  if (!options.run_id.empty()) return options.run_id;
  if (options.max_nodes > 1) return "none";
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &local);
  return fmt::format("{}-{}", text.data(), random_hex(2));
}

// Each rank needs three descriptors, and the usual soft limit is 1024. Returns the previous limit.
rlimit raise_open_files() {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit raised{.rlim_cur = before.rlim_max, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

Result<std::unique_ptr<dashboard::Dashboard>> start_dashboard(const RunOptions& options, const Command& command,
                                                              const std::string& run_id) {
  return dashboard::Dashboard::start(*options.dashboard,
                                     {.command = fmt::format("{}", fmt::join(command.arguments, " ")),
                                      .run_id = run_id,
                                      .host = host_name(),
                                      .launcher_pid = ::getpid(),
                                      .elastic = options.elastic,
                                      .ranks = options.nproc,
                                      .started = double(std::time(nullptr))});
}

}  // namespace

Result<Job> prepare_job(RunOptions options, const Environment& environment) {
  auto command = find_command(options, environment);
  if (!command.ok()) return command.status();
  const std::string run_id = make_run_id(options);
  auto logs = LogFiles::create(options, run_id, environment("TMPDIR").value_or("/tmp"));
  if (!logs.ok()) return logs.status();
  auto secret = Secret::from_environment();
  if (!secret.ok()) return secret.status();
  // Several nodes cannot generate a common secret; a single node can, and passes it only to its ranks.
  if (secret->empty() && options.max_nodes == 1) secret = Secret(random_hex(32));
  // It is not in the environment any more, unless ranks can read the file, too.
  std::string child_secret;
  if (!environment("LOCKSTEP_SECRET_FILE")) child_secret = secret->key();
  std::unique_ptr<TraceCollector> trace;
  if (!options.trace.empty()) {
    // Each node writes the timeline of its own ranks.
    const bool alone = options.max_nodes == 1;
    auto collector =
        TraceCollector::create(alone ? options.trace : fmt::format("{}.{}.{}", options.trace, host_name(), ::getpid()));
    if (!collector.ok()) return collector.status();
    trace = *std::move(collector);
  }
  std::unique_ptr<MetricsCollector> metrics;
  if (!options.metrics.empty()) {
    const bool alone = options.max_nodes == 1;
    auto collector = MetricsCollector::create(
        alone ? options.metrics : fmt::format("{}/{}.{}", options.metrics, host_name(), ::getpid()));
    if (!collector.ok()) return collector.status();
    metrics = *std::move(collector);
  }
  auto folder = RuntimeDirectory::create(environment);
  if (!folder.ok()) return folder.status();
  auto guard = Guard::start({.folder = folder->path(),
                             .rank_roster = Job::rank_roster_in(folder->path()),
                             .node_roster = Job::node_roster_in(folder->path()),
                             .secret = *secret,
                             .stay = options.node_timeout});
  if (!guard.ok()) return guard.status();

  std::unique_ptr<dashboard::Dashboard> dashboard;
  if (options.dashboard) {
    auto started = start_dashboard(options, *command, run_id);
    if (!started.ok()) return started.status();
    dashboard = *std::move(started);
  }

  const auto cores = usable_cores();
  const bool serve =
      options.serve_store == ServeStore::yes || (options.serve_store == ServeStore::automatic && !command->is_python);
  const bool prefix = options.prefix;
  auto binding = options.bind ? plan_binding(cores, options.nproc) : std::vector<std::vector<int>>();
  const int threads = cores_per_rank(static_cast<int>(cores.size()), options.nproc);
  return Job{.options = std::move(options),
             .command = *std::move(command),
             .run_id = run_id,
             .host = host_name(),
             .secret = *std::move(secret),
             .child_secret = child_secret,
             .environment = current_environment(),
             .binding = std::move(binding),
             .threads = threads,
             .serve_store = serve,
             .open_files = raise_open_files(),
             .folder = *std::move(folder),
             .logs = *std::move(logs),
             .guard = *std::move(guard),
             .trace = std::move(trace),
             .metrics = std::move(metrics),
             .dashboard = std::move(dashboard),
             .console = Console(STDOUT_FILENO, STDERR_FILENO, prefix, environment)};
}

}  // namespace lockstep::launch
