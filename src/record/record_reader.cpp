#include "record/record_reader.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/printable.h"

namespace lockstep::record {
namespace {

// An operation whose end was not recorded took no longer than this.
constexpr std::int64_t kShortNs = 50'000;

// What a process has written there may be any bytes, and what reads it prints it.
template <std::size_t kSize>
std::string text_of(const std::atomic<char> (&from)[kSize]) {
  std::string text;
  for (const auto& letter : from) {
    const char c = letter.load(std::memory_order_relaxed);  // what follows the text was stored with release
    if (c == '\0') break;
    text += c;
  }
  return printable_line(text);
}

// The process' first reading of the clocks, and one of now: the more time between them, the more exact is the rate.
TickScale scale_of(const RecordArea& area) {
  const ClockReading start{area.start_ticks.load(), area.start_monotonic_ns.load(), area.start_wall_ns.load()};
  ClockReading now = ClockReading::now();
  constexpr std::uint64_t kEnough = 10'000'000;
  if (now.monotonic_ns - start.monotonic_ns < kEnough) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    now = ClockReading::now();
  }
  return TickScale(static_cast<TickSource>(area.tick_source.load()), start, now);
}

RecordedStep in_seconds(const StepRecord& step, const TickScale& scale) {
  RecordedStep recorded{.number = step.number,
                        .model = step.model,
                        .end_ns = scale.monotonic_ns(step.end),
                        .total = static_cast<float>(scale.seconds(double(step.total))),
                        .exposed = static_cast<float>(scale.seconds(double(step.exposed))),
                        .buckets = step.buckets};
  for (std::size_t i = 0; i < kPhaseKinds; ++i) recorded.own[i] = float(scale.seconds(double(step.own[i])));
  for (std::size_t i = 0; i < kBucketSegments; ++i) recorded.bucket[i] = float(scale.seconds(double(step.bucket[i])));
  return recorded;
}

}  // namespace

void RecordReader::read_identity(RankRecord& record, const TickScale& scale) const {
  record.pid = area_.pid.load();
  record.rank = area_.rank.load() - 1;
  record.world_size = area_.world_size.load();
  record.generation = area_.generation.load();
  record.host = text_of(area_.host);
  record.wall_offset_ns = area_.start_wall_ns.load() - static_cast<std::int64_t>(area_.start_monotonic_ns.load());
  record.step = area_.step.load();
  record.metrics_not_recorded = area_.metrics_not_recorded.load();
  record.phase = static_cast<int>(area_.current_phase.load()) - 1;
  record.phase_since_ns = record.phase < 0 ? 0 : scale.monotonic_ns(area_.current_since.load());
  if (area_.failure_state.load() == 2) {
    record.failure = text_of(area_.failure);
    record.failure_ns = scale.monotonic_ns(area_.failure_ticks.load());
  }
}

void RecordReader::read_operations(const GroupRecord& group, GroupPosition& position, std::uint64_t end,
                                   RankRecord& record, const TickScale& scale) {
  auto& operations = record.groups[position.index].operations;
  const std::uint64_t oldest = end > kOperations ? end - kOperations : 0;
  if (position.next < oldest) {
    record.lost += oldest - position.next;
    position.next = oldest;
  }
  for (; position.next < end; ++position.next) {
    const auto read = group.operations.read(position.next);
    if (!read) {
      // The latest one may be being written: it is read next time. Others were overwritten meanwhile.
      if (position.next + 1 == group.operations.count()) return;
      ++record.lost;
      continue;
    }
    if (!operations.empty() && operations.back().sequence == read->sequence) operations.pop_back();
    const std::int64_t before_ns =
        operations.empty() ? 0 : std::max(operations.back().started_ns, operations.back().finished_ns);
    const bool timed = read->started != 0;
    RecordedOperation operation{.sequence = read->sequence,
                                .issued_ns = timed ? scale.monotonic_ns(read->issued) : before_ns,
                                .started_ns = timed ? scale.monotonic_ns(read->started) : before_ns,
                                .finished_ns = read->finished == 0 ? 0 : scale.monotonic_ns(read->finished),
                                .timed = timed,
                                .bytes = read->bytes,
                                .label = read->label,
                                .root = read->root,
                                .kind = read->kind,
                                .algorithm = read->algorithm,
                                .outcome = read->outcome};
    if (!operations.empty() && operations.back().finished_ns == 0 && operations.back().outcome == Outcome::done) {
      auto& before = operations.back();
      before.finished_ns = std::min(before.started_ns + kShortNs, operation.started_ns);
    }
    operations.push_back(operation);
    // Read again next time; only a group's latest operation can be running.
    if (operation.outcome == Outcome::running) return;
  }
}

void RecordReader::read_group(const GroupRecord& group, GroupPosition& position, RankRecord& record,
                              const TickScale& scale) {
  const std::uint64_t state = group.state.load();
  if (state == 0 || state % 4 == 1) return;
  const std::uint64_t use = state % 4 == 2 ? state / 4 + 1 : state / 4;
  if (use != position.use) {
    const std::uint64_t first = group.first.load();
    if (position.use != 0) read_operations(group, position, first, record, scale);
    RecordedGroup next{.id = group.id.load(),
                       .name = text_of(group.name),
                       .rank = static_cast<int>(group.rank.load()),
                       .size = static_cast<int>(group.size.load())};
    if (group.state.load() != state) return;  // it may be another use's by now: next time
    const std::uint64_t count = group.operations.count();
    position = {.use = use, .next = activity_only_ && count > first ? count - 1 : first, .index = record.groups.size()};
    record.groups.push_back(std::move(next));
  }
  read_operations(group, position, group.operations.count(), record, scale);
}

void RecordReader::add_metrics(RankRecord& record, const TickScale& scale) {
  const std::uint64_t end = area_.metrics.count();
  const std::uint64_t oldest = end > kMetrics ? end - kMetrics : 0;
  if (next_metric_ < oldest) {
    record.lost += oldest - next_metric_;
    next_metric_ = oldest;
  }
  for (; next_metric_ < end; ++next_metric_) {
    const auto read = area_.metrics.read(next_metric_);
    if (!read) {
      // Still being written: read next time. If it is then as it was, its thread was killed in it.
      const bool latest = next_metric_ + 1 == area_.metrics.count();
      if (latest || unfinished_metric_ != next_metric_ + 1) {
        unfinished_metric_ = next_metric_ + 1;
        return;
      }
      ++record.lost;
      continue;
    }
    if (read->name >= kMetricNames) continue;  // only a process that overwrites its own memory has such a record
    record.metrics.push_back({.name = stored_metric_name(text_of(area_.metric_names[read->name].text)),
                              .value = read->value,
                              .step = read->step,
                              .time_ns = scale.monotonic_ns(read->ticks),
                              .rank = read->rank,
                              .generation = read->generation});
  }
}

bool RecordReader::read(RankRecord& record) {
  if (area_.pid.load() <= 0) return false;
  const TickScale scale = scale_of(area_);
  read_identity(record, scale);
  for (std::size_t i = 0; i < kGroups; ++i) {
    if (activity_only_ && area_.groups[i].state.load() % 4 != 2) continue;  // it has ended
    read_group(area_.groups[i], groups_[i], record, scale);
  }
  if (activity_only_) return true;

  const std::uint64_t spans = area_.spans.count();
  if (spans > kSpans && next_span_ < spans - kSpans) record.lost += spans - kSpans - next_span_;
  next_span_ = area_.spans.for_each_from(next_span_, [&](std::uint64_t, const SpanRecord& span) {
    record.spans.push_back({.kind = span.kind,
                            .begin_ns = scale.monotonic_ns(span.begin),
                            .end_ns = scale.monotonic_ns(span.end),
                            .blocked_ns = static_cast<std::int64_t>(scale.seconds(double(span.blocked)) * 1e9),
                            .index = span.index,
                            .bytes = span.bytes,
                            .model = span.model,
                            .thread = span.thread});
  });
  next_step_ = area_.steps.for_each_from(
      next_step_, [&](std::uint64_t, const StepRecord& step) { record.steps.push_back(in_seconds(step, scale)); });
  add_metrics(record, scale);
  return true;
}

bool RecordReader::read_metrics(RankRecord& record) {
  if (area_.pid.load() <= 0) return false;
  const TickScale scale = scale_of(area_);
  read_identity(record, scale);
  add_metrics(record, scale);
  return true;
}

bool RecordReader::follows(std::size_t group) const {
  return std::ranges::any_of(groups_, [=](const auto& one) { return one.use != 0 && one.index == group; });
}

void RecordReader::drop_replaced_groups(RankRecord& record, bool only_empty) {
  std::vector<RecordedGroup> kept;
  for (std::size_t i = 0; i < record.groups.size(); ++i) {
    const auto position = std::find_if(groups_.begin(), groups_.end(),
                                       [i](const GroupPosition& one) { return one.use != 0 && one.index == i; });
    const bool replaced = position == groups_.end();
    if (replaced && (!only_empty || record.groups[i].operations.empty())) continue;
    if (!replaced) position->index = kept.size();
    kept.push_back(std::move(record.groups[i]));
  }
  record.groups = std::move(kept);
}

std::vector<RecordedStep> recent_steps(const RecordArea& area, std::uint32_t model, std::size_t count) {
  std::vector<RecordedStep> steps;
  const TickScale scale = scale_of(area);
  area.steps.for_each_from(0, [&](std::uint64_t, const StepRecord& step) {
    if (step.model == model) steps.push_back(in_seconds(step, scale));
  });
  if (steps.size() > count) steps.erase(steps.begin(), steps.end() - static_cast<std::ptrdiff_t>(count));
  return steps;
}

RankRecord read_record(const RecordArea& area) {
  RankRecord record;
  RecordReader(area).read(record);
  return record;
}

RankRecord read_activity(const RecordArea& area) {
  RankRecord record;
  RecordReader(area, true).read(record);
  return record;
}

}  // namespace lockstep::record
