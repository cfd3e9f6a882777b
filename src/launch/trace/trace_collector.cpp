#include "launch/trace/trace_collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>

namespace lockstep::launch {
namespace {

// Removes the oldest half of a list that has grown too long; returns how many.
template <typename List>
std::uint64_t shorten(List& list) {
  if (list.size() <= TraceCollector::kKept) return 0;
  const std::size_t removed = list.size() - TraceCollector::kKept / 2;
  list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(removed));
  return removed;
}

Status cannot_write(const std::string& path) {
  return Status(StatusCode::invalid_argument, fmt::format("--trace: the file '{}' cannot be written", path));
}

}  // namespace

Result<std::unique_ptr<TraceCollector>> TraceCollector::create(const std::string& path) {
  if (!std::ofstream(path, std::ios::binary)) return cannot_write(path);
  return std::unique_ptr<TraceCollector>(new TraceCollector(path));
}

void TraceCollector::started(const record::RecordMemory& memory, const std::string& name) {
  sources_.push_back(std::make_unique<Source>(
      Source{.memory = &memory, .reader = record::RecordReader(memory.area()), .rank = {.record = {}, .name = name}}));
}

void TraceCollector::read(Source& source) {
  auto& record = source.rank.record;
  if (!source.reader.read(record)) return;
  record.lost += shorten(record.spans);
  shorten(record.steps);
  for (auto& group : record.groups) record.lost += shorten(group.operations);
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
}

Status TraceCollector::write() {
  std::vector<record::TracedRank> ranks;
  for (const auto& source : sources_) {
    if (source->memory != nullptr) read(*source);
    if (source->rank.record.pid != 0) ranks.push_back(std::move(source->rank));
  }
  // Ranks in their order, and the processes of one rank in that of their starts.
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const auto& a, const auto& b) { return a.record.rank < b.record.rank; });
  std::ofstream file(path_, std::ios::binary | std::ios::trunc);
  file << record::trace_json(ranks, {.now_ns = static_cast<std::int64_t>(record::monotonic_ns())});
  return file.flush() ? Status() : cannot_write(path_);
}

}  // namespace lockstep::launch
