#include "dashboard/job_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dashboard/rank_summary.h"
#include "record/running_jobs.h"
#include "record/straggler.h"

namespace lockstep::dashboard {
namespace {

constexpr double kUsagePeriod = 2;          // seconds between two readings of /proc
constexpr std::uint64_t kCompareEvery = 4;  // samples
constexpr std::size_t kKeptSteps = 256;
constexpr std::int64_t kSpeedWindowNs = 1'000'000'000;

double wall_seconds() { return double(record::wall_clock_ns()) * 1e-9; }

template <typename List>
void keep_last(List& list, std::size_t count) {
  if (list.size() > count) list.erase(list.begin(), list.end() - static_cast<std::ptrdiff_t>(count));
}

// The last step that ended before; 0: none.
std::uint64_t step_before(const record::RankRecord& record, std::int64_t time_ns) {
  const auto step = std::find_if(record.steps.rbegin(), record.steps.rend(),
                                 [&](const record::RecordedStep& one) { return one.end_ns <= time_ns; });
  return step == record.steps.rend() ? 0 : step->number;
}

}  // namespace

JobSampler::Source::Source(RankStart from) : start(std::move(from)) {
  if (start.memory) reader = std::make_unique<record::RecordReader>(start.memory->area());
  shown = {
      .name = start.name, .rank = start.rank, .local_rank = start.local_rank, .host = start.host, .pid = start.pid};
}

JobSampler::JobSampler(JobFacts facts) { state_.facts = std::move(facts); }

void JobSampler::notify(Notice notice) {
  const std::lock_guard lock(mutex_);
  notices_.push_back(std::move(notice));
}

void JobSampler::round_began(int number, int node, int nodes, int world_size) {
  notify([=](JobSampler& sampler) {
    if (number != sampler.state_.round) sampler.metrics_.restart();
    sampler.state_.round = number;
    sampler.state_.node = node;
    sampler.state_.nodes = nodes;
    sampler.state_.world_size = world_size;
  });
}

void JobSampler::rank_started(RankStart start) {
  notify([start = std::move(start)](JobSampler& sampler) { sampler.start(start); });
}

void JobSampler::rank_ended(std::int64_t pid, const std::string& how, bool consequence) {
  notify([pid, how, consequence](JobSampler& sampler) { sampler.end(pid, how, consequence); });
}

void JobSampler::message(EventKind kind, std::string_view text) {
  notify([kind, text = std::string(text.substr(0, kLongestEvent)), time = wall_seconds()](JobSampler& sampler) {
    sampler.add_event(kind, text);
    sampler.state_.events.back().time = time;
  });
}

void JobSampler::job_ended(bool succeeded, const std::string& conclusion) {
  notify([succeeded, conclusion](JobSampler& sampler) {
    sampler.state_.conclusion = conclusion;
    sampler.state_.succeeded = succeeded;
    sampler.add_event(EventKind::end, conclusion);
  });
}

void JobSampler::add_event(EventKind kind, std::string text) {
  state_.events.push_back({.tick = state_.tick, .time = wall_seconds(), .kind = kind, .text = std::move(text)});
  keep_last(state_.events, kMostEvents);
}

void JobSampler::start(const RankStart& start) {
  const auto same = std::find_if(sources_.begin(), sources_.end(),
                                 [&](const auto& one) { return one->start.local_rank == start.local_rank; });
  auto source = std::make_unique<Source>(start);
  if (same == sources_.end()) {
    sources_.push_back(std::move(source));
  } else {
    source->shown.starts = (*same)->shown.starts + 1;
    add_event(EventKind::start, fmt::format("{} started again, as pid {}", start.name, start.pid));
    *same = std::move(source);
  }
}

void JobSampler::end(std::int64_t pid, const std::string& how, bool consequence) {
  for (const auto& source : sources_) {
    if (source->start.pid != pid || source->ended) continue;
    source->ended = true;
    // Twice: see RecordReader.
    for (int i = 0; i < 2; ++i) read(*source, static_cast<std::int64_t>(record::monotonic_ns()));
    RankState& shown = source->shown;
    shown.condition = how.empty() ? RankCondition::finished : RankCondition::failed;
    shown.end = how;
    shown.phase.clear();
    shown.operation.clear();
    shown.phase_age = shown.operation_age = 0;
    // Its processor time stays: it is counted.
    if (shown.usage) shown.usage = ProcessUsage{.cpu_seconds = shown.usage->cpu_seconds};
    source->reader.reset();
    source->start.memory.reset();
    source->record = {};
    if (!how.empty() && !consequence) ++state_.failures;
  }
}

void JobSampler::read(Source& source, std::int64_t now_ns) {
  if (!source.reader) return;
  const std::size_t known_steps = source.record.steps.size();
  if (!source.reader->read(source.record)) return;
  count_steps(source, known_steps);
  note_snapshots(source);
  describe_rank(source.shown, source.record, now_ns);
  source.reader->drop_replaced_groups(source.record);
  // The reader continues from the latest operation of each group.
  for (auto& group : source.record.groups) keep_last(group.operations, 1);
  source.record.spans.clear();
  metrics_.add(source.record.metrics, state_.tick);
  source.record.metrics.clear();
  keep_last(source.record.steps, kKeptSteps);
}

void JobSampler::count_steps(Source& source, std::size_t first) {
  RankState& shown = source.shown;
  for (std::size_t i = first; i < source.record.steps.size(); ++i) {
    const auto& step = source.record.steps[i];
    ++shown.counted_steps;
    shown.counted_exposed += double(step.exposed);
    for (std::size_t kind = 0; kind < kPhaseKinds; ++kind) shown.counted_own[kind] += double(step.own[kind]);
  }
}

// All ranks take part in a snapshot: the first that shows it counts.
void JobSampler::note_snapshots(Source& source) {
  for (const auto& span : source.record.spans) {
    if (span.kind != PhaseKind::snapshot) continue;
    ++source.shown.counted_snapshots;
    const std::uint64_t step = step_before(source.record, span.begin_ns);
    if (span.begin_ns <= last_snapshot_ns_ || (step != 0 && step == last_snapshot_step_)) continue;
    last_snapshot_ns_ = span.end_ns;
    last_snapshot_step_ = step;
    add_event(EventKind::snapshot,
              fmt::format("snapshot after step {}, {:.2g} s", step, double(span.end_ns - span.begin_ns) * 1e-9));
    state_.events.back().time = double(span.end_ns + source.record.wall_offset_ns) * 1e-9;
  }
}

void JobSampler::read_usage(Source& source, double elapsed) {
  auto usage = dashboard::read_usage(source.start.pid);
  if (!usage) return;
  if (source.shown.usage) {
    usage->cores = std::max(0.0, usage->cpu_seconds - source.shown.usage->cpu_seconds) / elapsed;
  }
  source.shown.usage = usage;
}

const JobSampler::Source* JobSampler::leading() const {
  const Source* leading = nullptr;
  for (const auto& source : sources_) {
    if (source->shown.condition != RankCondition::running || source->record.steps.empty()) continue;
    if (leading == nullptr || source->shown.rank < leading->shown.rank) leading = source.get();
  }
  return leading;
}

Curve& JobSampler::curve(const std::string& name, const std::string& x_name) {
  for (Curve& one : state_.curves) {
    if (one.name() == name && one.x_name() == x_name) return one;
  }
  return state_.curves.emplace_back(name, x_name);
}

void JobSampler::follow_speed(std::int64_t now_ns) {
  const Source* const source = leading();
  state_.steps_per_second = 0;
  if (source == nullptr || state_.conclusion) return;
  state_.steps_per_second = step_rate(recent_steps(source->record.steps), now_ns, kSpeedWindowNs);
  if (state_.steps_per_second > 0 && state_.tick % 2 == 0) {
    curve(std::string(kSpeedCurve), "time").add({.tick = state_.tick, .x = state_.now, .y = state_.steps_per_second});
  }
}

void JobSampler::compare_ranks() {
  std::vector<record::RankSteps> compared;
  for (const auto& source : sources_) {
    if (source->shown.condition == RankCondition::finished || source->shown.condition == RankCondition::failed)
      continue;
    compared.push_back(
        {.rank = source->shown.rank, .host = source->start.host, .steps = recent_steps(source->record.steps)});
  }
  state_.stragglers = record::find_straggler(compared);
}

const JobState& JobSampler::sample() {
  std::vector<Notice> notices;
  {
    const std::lock_guard lock(mutex_);
    notices.swap(notices_);
  }
  ++state_.tick;
  state_.now = wall_seconds();
  for (const Notice& notice : notices) notice(*this);
  const auto now_ns = static_cast<std::int64_t>(record::monotonic_ns());
  for (const auto& source : sources_) read(*source, now_ns);
  if (const double elapsed = double(now_ns - usage_ns_) * 1e-9; elapsed >= kUsagePeriod) {
    usage_ns_ = now_ns;
    for (const auto& source : sources_) {
      if (source->reader) read_usage(*source, elapsed);
    }
  }
  metrics_.finish_sample(state_.curves, state_.tick);
  state_.seconds_left = metrics_.seconds_left();
  follow_speed(now_ns);
  if (state_.tick % kCompareEvery == 0) compare_ranks();

  std::vector<record::RankRecord> waiting;
  state_.ranks.clear();
  for (const auto& source : sources_) {
    state_.ranks.push_back(source->shown);
    if (!source->shown.operation.empty() || source->shown.condition == RankCondition::running) {
      waiting.push_back({.pid = source->record.pid, .rank = source->shown.rank, .groups = source->record.groups});
    }
  }
  state_.waiting = record::describe_missing(waiting, now_ns);
  std::stable_sort(state_.ranks.begin(), state_.ranks.end(), [](const RankState& a, const RankState& b) {
    return std::pair(a.rank, a.local_rank) < std::pair(b.rank, b.local_rank);
  });
  return state_;
}

}  // namespace lockstep::dashboard
