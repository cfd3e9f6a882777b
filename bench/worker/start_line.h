// A barrier of the harness itself, in memory that all ranks of one engine map: every engine is
// timed from the same kind of start, whatever its own barrier is like.
//
// The last rank to arrive publishes the start: a moment a few microseconds ahead while every rank
// has a core (all spin until then and start within tens of nanoseconds of each other), or the present if ranks
// share cores (the others start when the scheduler resumes them).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::bench {

// The first page of the shared memory.
struct SharedPage {
  alignas(64) std::atomic<std::uint32_t> arrived;
  alignas(64) std::atomic<std::uint32_t> generation;
  std::atomic<std::int64_t> start;
  // The two lines of the cache-line ping-pong that is the limit for small messages.
  alignas(64) std::atomic<std::uint64_t> ping;
  alignas(64) std::atomic<std::uint64_t> pong;
};
inline constexpr std::size_t kSharedPageBytes = 4096;
static_assert(sizeof(SharedPage) <= kSharedPageBytes);

// Nanoseconds of the monotonic clock, which all processes of a machine share.
std::int64_t now_ns();

// The memory behind `path`, mapped and shared; unmapped at the end.
class SharedMapping {
 public:
  // Throws BenchError.
  SharedMapping(const std::string& path, std::size_t bytes);
  ~SharedMapping();
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  SharedPage& page() const { return *reinterpret_cast<SharedPage*>(data_); }
  // The memory after the page.
  std::byte* rest() const { return data_ + kSharedPageBytes; }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

class StartLine {
 public:
  // `own_core`: every rank has its own core, so that all can start at the same moment.
  StartLine(SharedPage& page, int ranks, bool own_core) : page_(page), ranks_(ranks), own_core_(own_core) {}

  // Blocks until all ranks have arrived, at most two minutes (then throws BenchError); returns the
  // start, which may be ahead.
  std::int64_t arrive();
  // Blocks until the start time.
  static void wait_for(std::int64_t start);

 private:
  SharedPage& page_;
  int ranks_;
  bool own_core_;
};

}  // namespace lockstep::bench
