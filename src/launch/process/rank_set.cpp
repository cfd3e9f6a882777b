#include "launch/process/rank_set.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>

#include "launch/report/crash_text.h"

namespace lockstep::launch {
namespace {

constexpr int kCollectMs = std::min(TraceCollector::kPeriodMs, MetricsCollector::kPeriodMs);

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str().substr(0, std::size_t{64} * 1024);
}

std::optional<CrashText> read_crash(const std::string& error_file, const std::string& torch_error_file) {
  if (auto crash = parse_crash_report(content_of(error_file))) return crash;
  return parse_torch_error(content_of(torch_error_file));
}

std::string with_frames(const CrashText& crash) {
  std::string text = crash.cause;
  for (std::size_t i = 0; i < crash.frames.size(); ++i) text += fmt::format("\n#{:<2} {}", i, crash.frames[i]);
  return text;
}

}  // namespace

RankSet::~RankSet() {
  for (const auto& [local_rank, rank] : ranks_) {
    record_ended(rank, "stopped by the launcher");
    if (job_.dashboard) job_.dashboard->job().rank_ended(rank.identity.pid, "stopped by the launcher", true);
  }
}

void RankSet::record_started(const Round& round, int local_rank, bool elastic, pid_t pid,
                             const std::shared_ptr<record::RecordMemory>& record) {
  const int rank = round.first_rank + local_rank;
  if (job_.trace && record) job_.trace->started(*record, elastic ? fmt::format("worker {}", local_rank) : "");
  if (job_.metrics && record) job_.metrics->started(*record, elastic ? 0 : round.number);
  if (!job_.dashboard) return;
  job_.dashboard->job().rank_started({.name = name_of(elastic, elastic ? local_rank : rank),
                                      .rank = elastic ? -1 : rank,
                                      .local_rank = local_rank,
                                      .host = job_.host,
                                      .pid = pid,
                                      .memory = record});
}

void RankSet::record_ended(const Rank& rank, const std::string& how) {
  if (!rank.record) return;
  if (job_.trace) job_.trace->ended(*rank.record, how);
  if (job_.metrics) job_.metrics->ended(*rank.record);
}

Status RankSet::start(const Round& round, const StartOptions& options) {
  const int local_rank = options.local_rank;
  auto folder = job_.logs.folder(round.node_rank, options.attempt, local_rank);
  if (!folder.ok()) return folder.status();
  auto out = RankStream::open(job_.logs.route(local_rank, 1), *folder, 1);
  if (!out.ok()) return out.status();
  auto err = RankStream::open(job_.logs.route(local_rank, 2), *folder, 2);
  if (!err.ok()) return err.status();
  const std::string errors =
      folder->empty() ? fmt::format("{}/attempt_{}_rank_{}_", job_.folder.path(), options.attempt, local_rank)
                      : *folder + "/";
  // A rank that cannot be recorded trains all the same.
  std::shared_ptr<record::RecordMemory> record;
  if (auto memory = record::RecordMemory::create(); memory.ok()) record = *std::move(memory);
  RankPlace place{.local_rank = local_rank,
                  .nproc = job_.options.nproc,
                  .role = job_.options.role,
                  .run_id = job_.run_id,
                  .restarts = options.restarts,
                  .max_restarts = job_.options.max_restarts,
                  .store_is_served = job_.serve_store,
                  .secret = job_.child_secret,
                  .threads = job_.threads,
                  .error_file = errors + "error.txt",
                  .torch_error_file = errors + "error.json",
                  .record = record ? record->variable() : "",
                  .elastic = options.elastic};
  // A folder that was used before may contain old error files.
  ::unlink(place.error_file.c_str());
  ::unlink(place.torch_error_file.c_str());
  // A terminal is of no use to a process outside the foreground group: reading from it would stop the rank.
  const bool reads_stdin = local_rank == 0 && round.node_rank == 0 && ::isatty(STDIN_FILENO) == 0;
  const auto index = static_cast<std::size_t>(local_rank);
  auto process = RankProcess::start({.path = job_.command.path,
                                     .arguments = job_.command.arguments,
                                     .environment = child_environment(job_.environment, round, place),
                                     .cores = job_.binding.empty() ? std::vector<int>() : job_.binding[index],
                                     .open_files = job_.open_files,
                                     .stdin_fd = reads_stdin ? STDIN_FILENO : -1,
                                     .stdout_fd = out->write_end(),
                                     .stderr_fd = err->write_end(),
                                     .inherited_fd = record ? record->fd() : -1,
                                     // Waiting for each costs a context switch; the first is representative.
                                     .wait_for_exec = ranks_.empty()},
                                    job_.guard);
  if (!process.ok()) return process.status();
  out->started();
  err->started();
  stop_ns_.reset();
  const bool elastic = options.elastic.has_value();
  const int rank = round.first_rank + local_rank;
  record_started(round, local_rank, elastic, process->pid(), record);
  RankFailure identity{.rank = elastic ? -1 : rank,
                       .local_rank = local_rank,
                       .node_rank = round.node_rank,
                       .host = job_.host,
                       .pid = process->pid(),
                       .exit_code = 0,
                       .signal = 0,
                       .time_ns = 0,
                       .reason = {},
                       .log = *folder};
  // Not reaped yet, so the pid is still this process'.
  const ProcessIdentity started = find_process(process->pid()).value_or(ProcessIdentity{.pid = process->pid()});
  ranks_.emplace(local_rank, Rank{.identity = std::move(identity),
                                  .process_identity = started,
                                  .elastic = elastic,
                                  .number = elastic ? local_rank : rank,
                                  .count = elastic ? job_.options.nproc : round.world_size,
                                  .process = *std::move(process),
                                  .out = *std::move(out),
                                  .err = *std::move(err),
                                  .error_file = place.error_file,
                                  .torch_error_file = place.torch_error_file,
                                  .record = std::move(record)});
  return {};
}

void RankSet::print(const Rank& rank, Stream stream, std::string_view line) {
  job_.console.rank_line(stream, rank.elastic, rank.number, rank.count, line);
}

void RankSet::pump(Rank& rank, Stream stream) {
  RankStream& source = stream == Stream::out ? rank.out : rank.err;
  source.pump([&](std::string_view line) { print(rank, stream, line); });
  const std::string trouble = source.take_file_trouble();
  if (!trouble.empty()) job_.console.say(trouble);
}

RankEnd RankSet::finish(Rank& rank) {
  rank.process.kill_remains();
  for (const Stream stream : {Stream::out, Stream::err}) {
    (stream == Stream::out ? rank.out : rank.err).finish([&](std::string_view line) { print(rank, stream, line); });
  }
  const std::int64_t started_ns = rank.process.started_ns();
  const ProcessEnd how = rank.process.reap();
  record_ended(rank, how.success() ? "" : describe_end(how.exit_code, how.signal));
  RankEnd end;
  end.failure = rank.identity;
  end.process = rank.process_identity;
  end.failure.exit_code = how.exit_code;
  end.failure.signal = how.signal;
  end.failure.time_ns = how.time_ns;
  end.stderr_tail = rank.err.tail();
  if (!end.success()) {
    const auto crash = read_crash(rank.error_file, rank.torch_error_file);
    end.failure.reason = crash ? with_frames(*crash) : cause_from_stderr(end.stderr_tail);
    // The rank's own time of the crash is more accurate than the time at which its end was detected.
    if (crash && crash->time_ns > started_ns && crash->time_ns < how.time_ns) end.failure.time_ns = crash->time_ns;
  }
  end.uptime_seconds = static_cast<double>(end.failure.time_ns - started_ns) * 1e-9;
  end.consequence = is_consequence(end);
  end.stopped = stop_ns_ && !end.consequence && end.failure.time_ns >= *stop_ns_;
  if (job_.dashboard) {
    const std::string text = how.success() ? "" : describe_end(how.exit_code, how.signal);
    job_.dashboard->job().rank_ended(rank.identity.pid, text, end.stopped || end.consequence);
  }
  return end;
}

void RankSet::poll_once(int timeout_ms, const StopSignals& signals, std::vector<RankEnd>& ends) {
  struct Source {
    Rank* rank;
    int part;  // 0 stdout, 1 stderr, 2 the process
  };
  std::vector<pollfd> polled = {{signals.fd(), POLLIN, 0}};
  for (const Sink* sink : job_.console.sinks()) polled.push_back({sink->has_pending() ? sink->fd() : -1, POLLOUT, 0});
  std::vector<Source> sources;
  const bool full = job_.console.full();
  for (auto& [local_rank, rank] : ranks_) {
    for (int part = 0; part < 3; ++part) {
      const int stream_fd = full ? -1 : part == 0 ? rank.out.read_end() : rank.err.read_end();
      polled.push_back({part == 2 ? rank.process.pid_fd() : stream_fd, POLLIN, 0});
      sources.push_back({&rank, part});
    }
  }
  if (::poll(polled.data(), polled.size(), timeout_ms) <= 0) return;
  if (polled[0].revents != 0) signals.clear_fd();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (polled[i + 3].revents == 0) continue;
    if (sources[i].part < 2) {
      pump(*sources[i].rank, sources[i].part == 0 ? Stream::out : Stream::err);
    } else {
      ends.push_back(finish(*sources[i].rank));
      ranks_.erase(ends.back().failure.local_rank);
    }
  }
  job_.console.flush();
}

void RankSet::watch_for_stalls() {
  std::vector<const record::RecordMemory*> records;
  for (const auto& [local_rank, rank] : ranks_) {
    if (rank.record) records.push_back(rank.record.get());
  }
  if (const std::string message = stall_watch_.poll(records); !message.empty()) job_.console.say(message);
}

std::vector<RankEnd> RankSet::wait(Deadline deadline, const StopSignals& signals) {
  std::vector<RankEnd> ends;
  const int before = StopSignals::first() + (StopSignals::impatient() ? 1 : 0);
  do {
    const bool collects = job_.trace != nullptr || job_.metrics != nullptr;
    poll_once(deadline.poll_timeout_ms(collects ? kCollectMs : 1000), signals, ends);
    if (job_.trace) job_.trace->poll();
    watch_for_stalls();
    if (job_.metrics) {
      job_.metrics->poll();
      if (const std::string trouble = job_.metrics->take_trouble(); !trouble.empty()) job_.console.say(trouble);
    }
  } while (ends.empty() && !deadline.expired() && before == StopSignals::first() + (StopSignals::impatient() ? 1 : 0));
  return ends;
}

std::string RankSet::running_names() const {
  std::vector<int> numbers;
  for (const auto& [local_rank, rank] : ranks_) numbers.push_back(rank.number);
  const bool elastic = !ranks_.empty() && ranks_.begin()->second.elastic;
  return fmt::format("{} {}", elastic ? "worker" : "rank", rank_list(numbers));
}

std::map<int, ProcessIdentity> RankSet::processes() const {
  std::map<int, ProcessIdentity> result;
  for (const auto& [local_rank, rank] : ranks_) result[local_rank] = rank.process_identity;
  return result;
}

void RankSet::signal_all(int signal) {
  if (!stop_ns_) stop_ns_ = wall_clock_ns();
  for (const auto& [local_rank, rank] : ranks_) rank.process.signal_group(signal);
}

}  // namespace lockstep::launch
