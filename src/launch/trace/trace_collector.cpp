#include "launch/trace/trace_collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>

namespace lockstep::launch {
namespace {

// When a record begins: what is dropped is older than a point in time, so that all tracks begin together.
std::int64_t begin_of(const record::RecordedSpan& span) { return span.begin_ns; }
std::int64_t begin_of(const record::RecordedOperation& operation) { return operation.started_ns; }

template <typename List>
std::uint64_t drop_before(List& list, std::int64_t time_ns) {
  return std::erase_if(list, [=](const auto& one) { return begin_of(one) < time_ns; });
}

Status cannot_write(const std::string& path) {
  return Status(StatusCode::invalid_argument, fmt::format("--trace: the file '{}' cannot be written", path));
}

}  // namespace

Result<std::unique_ptr<TraceCollector>> TraceCollector::create(const std::string& path, std::size_t kept) {
  if (!std::ofstream(path, std::ios::binary)) return cannot_write(path);
  return std::unique_ptr<TraceCollector>(new TraceCollector(path, kept));
}

void TraceCollector::started(const record::RecordMemory& memory, const std::string& name) {
  sources_.push_back(std::make_unique<Source>(
      Source{.memory = &memory, .reader = record::RecordReader(memory.area()), .rank = {.record = {}, .name = name}}));
}

void TraceCollector::read(Source& source) {
  auto& record = source.rank.record;
  if (!source.reader.read(record)) return;
  // Not part of the timeline.
  record.steps.clear();
  record.metrics.clear();
}

std::size_t TraceCollector::count() const {
  std::size_t count = 0;
  for (const auto& source : sources_) {
    count += 1 + source->rank.record.spans.size();
    for (const auto& group : source->rank.record.groups) count += 1 + group.operations.size();
  }
  return count;
}

void TraceCollector::limit() {
  for (std::size_t now = count(), before = now + 1; now > kept_ && now < before;) {
    before = now;
    drop_older_half();
    now = count();
  }
}

void TraceCollector::drop_older_half() {
  std::vector<std::int64_t> begins;
  const auto note = [&](const auto& list) {
    for (const auto& one : list) begins.push_back(begin_of(one));
  };
  for (const auto& source : sources_) {
    note(source->rank.record.spans);
    for (const auto& group : source->rank.record.groups) note(group.operations);
  }
  const auto middle = begins.begin() + static_cast<std::ptrdiff_t>(begins.size() / 2);
  std::nth_element(begins.begin(), middle, begins.end());
  const std::int64_t from_ns = begins.empty() ? 0 : *middle;
  for (const auto& source : sources_) {
    record::RankRecord& record = source->rank.record;
    std::uint64_t dropped = drop_before(record.spans, from_ns);
    for (std::size_t i = 0; i < record.groups.size(); ++i) {
      auto& operations = record.groups[i].operations;
      if (operations.empty()) continue;
      const std::size_t count = operations.size();
      const record::RecordedOperation latest = operations.back();
      drop_before(operations, from_ns);
      // The reader may still complete it.
      if (operations.empty() && source->memory != nullptr && source->reader.follows(i)) operations.push_back(latest);
      dropped += count - operations.size();
    }
    source->reader.drop_replaced_groups(record, true);
    source->rank.dropped += dropped;
    dropped_ += dropped;
  }
  processes_gone_ += std::erase_if(sources_, [](const auto& source) {
    const auto& record = source->rank.record;
    return source->memory == nullptr && record.spans.empty() &&
           std::ranges::all_of(record.groups, [](const auto& group) { return group.operations.empty(); });
  });
}

void TraceCollector::ended(const record::RecordMemory& memory, const std::string& how) {
  for (const auto& source : sources_) {
    if (source->memory != &memory) continue;
    read(*source);
    source->rank.end = how;
    source->rank.end_ns = static_cast<std::int64_t>(record::monotonic_ns());
    source->memory = nullptr;
  }
}

void TraceCollector::poll() {
  if (!next_.expired()) return;
  next_ = Deadline::after(std::chrono::milliseconds(kPeriodMs));
  for (const auto& source : sources_) {
    if (source->memory != nullptr) read(*source);
  }
  limit();
}

Status TraceCollector::write() {
  std::vector<record::TracedRank> ranks;
  for (const auto& source : sources_) {
    if (source->memory != nullptr) read(*source);
  }
  limit();
  for (const auto& source : sources_) {
    overwritten_ += source->rank.record.lost;
    if (source->rank.record.pid != 0) ranks.push_back(std::move(source->rank));
  }
  // Ranks in their order, and the processes of one rank in that of their starts.
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const auto& a, const auto& b) { return a.record.rank < b.record.rank; });
  std::ofstream file(path_, std::ios::binary | std::ios::trunc);
  record::write_trace_json(file, ranks, {.now_ns = static_cast<std::int64_t>(record::monotonic_ns())});
  return file.flush() ? Status() : cannot_write(path_);
}

std::string TraceCollector::describe_dropped() const {
  std::string text;
  if (dropped_ > 0) {
    const std::string gone =
        processes_gone_ > 0 ? fmt::format(", {} processes that had ended among them", processes_gone_) : "";
    text = fmt::format("--trace: the timeline has the latest part of the job; {} older records were dropped{}",
                       dropped_, gone);
  }
  if (overwritten_ > 0) {
    text += fmt::format("{}{} records were overwritten before they were read", text.empty() ? "--trace: " : "; ",
                        overwritten_);
  }
  return text;
}

}  // namespace lockstep::launch
