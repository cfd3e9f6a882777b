#include "record/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include "base/json_text.h"
#include "collectives/selector.h"
#include "lockstep/collectives/operation.h"

namespace lockstep::record {
namespace {

// Tracks of a rank.
constexpr int kPhaseTrack = 1;
constexpr int kBucketTrack = 2;
constexpr int kFirstGroupTrack = 10;
constexpr std::size_t kPiece = std::size_t{1} << 20;

class TraceWriter {
 public:
  TraceWriter(std::ostream& out, std::span<const TracedRank> ranks, const TraceOptions& options)
      : out_(out), ranks_(ranks), options_(options) {
    origin_ = std::numeric_limits<std::int64_t>::max();
    for (const TracedRank& rank : ranks) {
      for (const auto& span : rank.record.spans) include(span.begin_ns, span.end_ns);
      for (const auto& group : rank.record.groups) {
        for (const auto& operation : group.operations) include(operation.started_ns, end_of(rank, operation));
      }
    }
    if (origin_ == std::numeric_limits<std::int64_t>::max()) origin_ = options.now_ns;
  }

  void write() {
    const std::int64_t wall = ranks_.empty() ? 0 : ranks_.front().record.wall_offset_ns + origin_;
    out_ << fmt::format(
        "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"program\":\"lockstep\",\"start_wall_clock_ns\":\"{}\"}},\n"
        "\"traceEvents\":[\n",
        wall);
    for (std::size_t i = 0; i < ranks_.size(); ++i) write_rank(static_cast<int>(i));
    write_arrows();
    out_ << events_ << "\n]}\n";
  }

 private:
  // One rank's part in a collective.
  struct Part {
    int process;
    int track;
    std::int64_t started_ns;
    std::int64_t end_ns;
  };

  void include(std::int64_t begin, std::int64_t end) {
    if (end >= options_.from_ns) origin_ = std::min(origin_, begin);
  }
  // Where an operation that has not finished is drawn to.
  std::int64_t end_of(const TracedRank& rank, const RecordedOperation& operation) const {
    if (operation.finished_ns != 0) return operation.finished_ns;
    const std::int64_t until = rank.end_ns != 0 ? rank.end_ns : options_.now_ns;
    return std::max(operation.started_ns, until);
  }
  double micros(std::int64_t ns) const { return static_cast<double>(ns - origin_) * 1e-3; }

  template <typename... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    if (std::exchange(begun_, true)) events_ += ",\n";
    fmt::format_to(std::back_inserter(events_), format, std::forward<Args>(args)...);
    if (events_.size() < kPiece) return;
    out_ << events_;
    events_.clear();
  }
  void name_track(int process, int track, std::string_view name) {
    event("{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}}", process, track,
          json_string(name));
    event("{{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":{},\"tid\":{},\"args\":{{\"sort_index\":{}}}}}",
          process, track, track);
  }

  void write_rank(int process) {
    const TracedRank& traced = ranks_[static_cast<std::size_t>(process)];
    const RankRecord& record = traced.record;
    const std::string rank = record.rank >= 0 ? fmt::format("rank {}", record.rank) : "process";
    const std::string name =
        fmt::format("{} ({}, pid {})", traced.name.empty() ? rank : traced.name, record.host, record.pid);
    event("{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":{}}}}}", process, json_string(name));
    event("{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{},\"args\":{{\"sort_index\":{}}}}}", process,
          process);
    name_track(process, kPhaseTrack, "training loop");
    name_track(process, kBucketTrack, "buckets");
    for (const RecordedSpan& span : record.spans) {
      if (span.end_ns >= options_.from_ns) write_span(process, span);
    }
    for (std::size_t i = 0; i < record.groups.size(); ++i) {
      const int track = kFirstGroupTrack + static_cast<int>(i);
      const RecordedGroup& group = record.groups[i];
      name_track(process, track, fmt::format("collectives of '{}'", group.name));
      for (const RecordedOperation& operation : group.operations) {
        if (end_of(traced, operation) >= options_.from_ns) write_operation(process, track, traced, group, operation);
      }
    }
    if (!record.failure.empty()) write_instant(process, "failure", record.failure, record.failure_ns);
    if (!traced.end.empty()) write_instant(process, "end", traced.end, traced.end_ns);
    if (record.lost > 0) {
      write_instant(process, "lost", fmt::format("{} records were overwritten before they were read", record.lost),
                    origin_);
    }
    if (traced.dropped > 0) {
      write_instant(process, "dropped",
                    fmt::format("{} older records were dropped to keep the file small", traced.dropped), origin_);
    }
  }

  void write_instant(int process, std::string_view name, std::string_view text, std::int64_t when) {
    if (when < origin_) when = origin_;
    event(
        "{{\"ph\":\"i\",\"s\":\"p\",\"cat\":\"event\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"args\":{{"
        "\"text\":{}}}}}",
        json_string(name), process, kPhaseTrack, micros(when), json_string(text));
  }

  void write_span(int process, const RecordedSpan& span) {
    if (span.kind == PhaseKind::generation) {
      return write_instant(process, fmt::format("generation {}", span.index), "", span.begin_ns);
    }
    if (span.kind == PhaseKind::bucket) {
      // Buckets overlap each other, so they are asynchronous events.
      const auto id = static_cast<unsigned long long>(span.model) << 32 | span.index;
      const std::string name = fmt::format("bucket {}", span.index);
      event(
          "{{\"ph\":\"b\",\"cat\":\"bucket\",\"id\":\"{:x}\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"args\":{"
          "{\"bytes\":{},"
          "\"model\":{}}}}}",
          id, json_string(name), process, kBucketTrack, micros(span.begin_ns), span.bytes, span.model);
      event("{{\"ph\":\"e\",\"cat\":\"bucket\",\"id\":\"{:x}\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f}}}", id,
            json_string(name), process, kBucketTrack, micros(span.end_ns));
      return;
    }
    event(
        "{{\"ph\":\"X\",\"cat\":\"phase\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"args\":{{"
        "\"index\":{},"
        "\"waited_us\":{:.3f},\"model\":{}}}}}",
        json_string(to_string(span.kind)), process, kPhaseTrack, micros(span.begin_ns),
        static_cast<double>(span.end_ns - span.begin_ns) * 1e-3, span.index,
        static_cast<double>(span.blocked_ns) * 1e-3, span.model);
  }

  void write_operation(int process, int track, const TracedRank& traced, const RecordedGroup& group,
                       const RecordedOperation& operation) {
    const std::int64_t end = end_of(traced, operation);
    const auto kind = static_cast<OperationKind>(operation.kind);
    const std::string_view outcome = operation.outcome == Outcome::done     ? "done"
                                     : operation.outcome == Outcome::failed ? "failed"
                                                                            : "running";
    event(
        "{{\"ph\":\"X\",\"cat\":\"collective\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"args\":"
        "{{"
        "\"sequence\":{},\"bytes\":{},\"algorithm\":{},\"queued_us\":{:.3f},\"outcome\":{},\"timed\":{}}}}}",
        json_string(to_string(kind)), process, track, micros(operation.started_ns),
        static_cast<double>(end - operation.started_ns) * 1e-3, operation.sequence, operation.bytes,
        json_string(to_string(static_cast<Algorithm>(operation.algorithm))),
        static_cast<double>(operation.started_ns - operation.issued_ns) * 1e-3, json_string(outcome), operation.timed);
    if (operation.timed) parts_[{group.id, operation.sequence}].push_back({process, track, operation.started_ns, end});
  }

  void write_arrows() {
    std::uint64_t id = 0;
    for (const auto& [operation, parts] : parts_) {
      if (parts.size() < 2) continue;
      const auto last = std::max_element(parts.begin(), parts.end(),
                                         [](const Part& a, const Part& b) { return a.started_ns < b.started_ns; });
      for (const Part& part : parts) {
        // An arrow back in time would only confuse: the end of a short operation is not known exactly.
        if (part.process == last->process || part.end_ns < last->started_ns) continue;
        ++id;
        event(
            "{{\"ph\":\"s\",\"cat\":\"arrival\",\"name\":\"last "
            "arrival\",\"id\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f}}}",
            id, last->process, last->track, micros(last->started_ns));
        event(
            "{{\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"arrival\",\"name\":\"last "
            "arrival\",\"id\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f}}}",
            id, part.process, part.track, micros(part.end_ns));
      }
    }
  }

  std::ostream& out_;
  const std::span<const TracedRank> ranks_;
  const TraceOptions options_;
  std::int64_t origin_ = 0;
  std::string events_;  // not written to out_ yet
  bool begun_ = false;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<Part>> parts_;  // by group and sequence
};

}  // namespace

std::string trace_json(std::span<const TracedRank> ranks, const TraceOptions& options) {
  std::ostringstream out;
  write_trace_json(out, ranks, options);
  return std::move(out).str();
}

void write_trace_json(std::ostream& out, std::span<const TracedRank> ranks, const TraceOptions& options) {
  TraceWriter(out, ranks, options).write();
}

}  // namespace lockstep::record
