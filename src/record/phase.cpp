#include "lockstep/record/phase.h"

#include "record/recorder.h"

namespace lockstep {

std::string_view to_string(PhaseKind kind) {
  switch (kind) {
    case PhaseKind::data: return "data loading";
    case PhaseKind::forward: return "forward";
    case PhaseKind::backward: return "backward";
    case PhaseKind::optimizer: return "optimizer";
    case PhaseKind::commit: return "commit";
    case PhaseKind::snapshot: return "snapshot";
    case PhaseKind::other: return "other";
    case PhaseKind::exposed_wait: return "exposed wait";
    case PhaseKind::bucket: return "bucket";
    case PhaseKind::generation: return "generation";
    case PhaseKind::user: return "user";
  }
  return "unknown";
}

Phase::Phase(PhaseKind kind, std::uint32_t index) noexcept : kind_(kind), index_(index), begin_(record::now_ticks()) {
  record::ThreadTimes& times = record::thread_times();
  blocked_ = times.blocked;
  inner_ = times.inner;
  auto& area = record::Recorder::process().area();
  outer_ = area.current_phase.exchange(static_cast<std::uint32_t>(kind) + 1);
  area.current_since.store(begin_);
}

Phase::~Phase() {
  const std::uint64_t end = record::now_ticks();
  record::ThreadTimes& times = record::thread_times();
  const std::uint64_t blocked = times.blocked - blocked_;
  const std::uint64_t inner = times.inner - inner_;
  const std::uint64_t whole = end - begin_;
  times.inner = inner_ + whole - blocked;
  if (whole > blocked + inner) times.marked[static_cast<std::size_t>(kind_)] += whole - blocked - inner;
  record::Recorder& recorder = record::Recorder::process();
  recorder.area().current_phase.store(outer_);
  recorder.area().current_since.store(end);
  recorder.add(record::SpanRecord{.begin = begin_,
                                  .end = end,
                                  .blocked = blocked,
                                  .kind = kind_,
                                  .index = index_,
                                  .thread = record::thread_number()});
}

}  // namespace lockstep
