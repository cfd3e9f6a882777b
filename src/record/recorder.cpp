#include "record/recorder.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>

#include "base/host_name.h"
#include "record/record_memory.h"

namespace lockstep::record {
namespace {

template <std::size_t kSize>
void copy_text(std::atomic<char> (&to)[kSize], std::string_view text) {
  std::size_t length = std::min(text.size(), kSize - 1);
  // Not within a character of UTF-8.
  while (length > 0 && length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  // Relaxed: what publishes the text is stored after it, with release.
  for (std::size_t i = 0; i < length; ++i) to[i].store(text[i], std::memory_order_relaxed);
  to[length].store('\0', std::memory_order_relaxed);
}

RecordArea* recorded_area = nullptr;

// A forked child would write into its parent's record. Gives it memory of its own at the same address.
void replace_in_child() {
  // Can fail only for lack of memory; then the parent's record is wrong, and nothing else.
  static_cast<void>(::mmap(recorded_area, sizeof(RecordArea), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
}

RecordArea* prepare(RecordArea* area) {
  const ClockReading now = ClockReading::now();
  area->tick_source.store(static_cast<std::uint32_t>(tick_source()));
  area->start_ticks.store(now.ticks);
  area->start_monotonic_ns.store(now.monotonic_ns);
  area->start_wall_ns.store(now.wall_ns);
  copy_text(area->host, host_name());
  area->pid.store(::getpid());  // last: readers check it first
  recorded_area = area;
  ::pthread_atfork(nullptr, nullptr, replace_in_child);
  return area;
}

}  // namespace

Recorder& Recorder::process() {
  // Never destroyed: threads may record until the process ends.
  static Recorder* const recorder = new Recorder(prepare(map_process_memory()));
  return *recorder;
}

void Recorder::set_world(int rank, int world_size, std::uint32_t generation) {
  area_->rank.store(rank + 1);
  area_->world_size.store(world_size);
  if (generation != 0 && area_->generation.exchange(generation) != generation) {
    instant(PhaseKind::generation, generation);
  }
}

void Recorder::advance_step(std::int64_t step) {
  std::int64_t before = area_->step.load();
  while (before < step && !area_->step.compare_exchange_weak(before, step)) {
  }
}

void Recorder::instant(PhaseKind kind, std::uint32_t index) {
  const std::uint64_t now = now_ticks();
  add(SpanRecord{.begin = now, .end = now, .kind = kind, .index = index, .thread = thread_number()});
}

void Recorder::set_failure(std::string_view reason) {
  std::uint32_t none = 0;
  if (!area_->failure_state.compare_exchange_strong(none, 1)) return;
  area_->failure_ticks.store(now_ticks());
  copy_text(area_->failure, reason);
  area_->failure_state.store(2);
}

GroupRecord* Recorder::open_group(std::string_view name, std::string_view id, int rank, int size) {
  // The one that has been free longest: what a group recorded stays readable after its end.
  while (true) {
    GroupRecord* oldest = nullptr;
    std::uint64_t oldest_state = 0;
    for (GroupRecord& group : area_->groups) {
      const std::uint64_t state = group.state.load();
      if (state % 4 == 0 && (oldest == nullptr || state < oldest_state)) {
        oldest = &group;
        oldest_state = state;
      }
    }
    if (oldest == nullptr) {
      area_->groups_not_recorded.fetch_add(1);
      return nullptr;
    }
    if (!oldest->state.compare_exchange_strong(oldest_state, oldest_state + 1)) continue;
    oldest->id.store(XXH3_64bits(id.data(), id.size()));
    oldest->rank.store(static_cast<std::uint32_t>(rank));
    oldest->size.store(static_cast<std::uint32_t>(size));
    copy_text(oldest->name, name);
    oldest->first.store(oldest->operations.count());
    oldest->state.store(oldest_state + 2);
    return oldest;
  }
}

void Recorder::close_group(GroupRecord* group) { group->state.fetch_add(2); }

ThreadTimes& thread_times() {
  thread_local constinit ThreadTimes times;
  return times;
}

std::uint32_t thread_number() {
  static std::atomic<std::uint32_t> threads{0};
  ThreadTimes& times = thread_times();
  if (times.thread == 0) times.thread = threads.fetch_add(1) + 1;
  return times.thread;
}

}  // namespace lockstep::record
