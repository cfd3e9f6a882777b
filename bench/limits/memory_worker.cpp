// The limit on one host: the time that the machine needs for the memory traffic of a collective alone.
// All ranks' buffers are in one mapping; each core processes its share of the elements, without
// synchronisation apart from the common start.
//
//   all_reduce      t = sum over ranks; t to every rank's buffer
//   broadcast       the root's buffer to every other
//   all_gather      every rank's input to every rank's output
//   reduce_scatter  t = sum over ranks; t to one rank's output
// but never less than the time of one cache line from one core to another.
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "bench/worker/channel.h"
#include "bench/worker/start_line.h"
#include "bench/worker/worker.h"

namespace lockstep::bench {
namespace {

constexpr std::size_t kBlock = 2048;  // elements that are summed at a time, in L1

// Adds up element blocks in rank order.
void sum_block(const std::vector<const float*>& inputs, std::size_t at, std::size_t n, float* total) {
  std::copy_n(inputs[0] + at, n, total);
  for (std::size_t k = 1; k < inputs.size(); ++k) {
    const float* const input = inputs[k] + at;
    for (std::size_t i = 0; i < n; ++i) total[i] += input[i];
  }
}

// For two ranks, the most common case: reads both inputs once and writes both outputs once.
void sum_two(float* a, float* b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const float t = a[i] + b[i];
    a[i] = t;
    b[i] = t;
  }
}

class MemoryLimit final : public Engine {
 public:
  explicit MemoryLimit(const WorkerConfig& config)
      : config_(config),
        shared_(config.shared, kSharedPageBytes + static_cast<std::size_t>(config.size) * config.arena),
        line_(shared_.page(), config.size, !config.cores.empty()) {
    workers_ = config.cores.empty() ? std::min(config.size, usable_cores()) : config.size;
  }

  std::string refusal(Collective collective, DType dtype) const override {
    const bool free_running = config_.cores.empty();
    if (collective == Collective::barrier && free_running) return "no limit is defined for ranks that share cores";
    return reduces(collective) && dtype != DType::f32 ? "the limit is measured with f32 only" : "";
  }

  std::byte* allocate(std::size_t, Memory) override { return arena_of(config_.rank); }

  std::function<void()> bind(const Operation& operation) override {
    if (is_one_line(operation)) return [this] { ping_pong(); };
    return [this, operation] { move(operation); };
  }

  double operations_per_call(const Operation& operation) const override {
    return is_one_line(operation) ? 2.0 * kRoundTrips : 1.0;
  }

  // The timed part has no barrier at its end; the check of the results needs one.
  void settle(const Operation& operation) override {
    if (is_one_line(operation)) move(operation);
    line_.arrive();
  }

 private:
  static constexpr int kRoundTrips = 32;

  static int usable_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  }

  // One cache line: only its latency matters.
  bool is_one_line(const Operation& operation) const {
    return operation.shape.bytes <= 64 && !config_.cores.empty() && config_.size > 1;
  }

  std::byte* arena_of(int rank) const { return shared_.rest() + static_cast<std::size_t>(rank) * config_.arena; }
  // The same offset in another rank's arena.
  template <typename T>
  T* theirs(void* mine, int rank) const {
    return reinterpret_cast<T*>(arena_of(rank) + (static_cast<std::byte*>(mine) - arena_of(config_.rank)));
  }

  // This core's share of `count` elements, in whole cache lines.
  std::pair<std::size_t, std::size_t> share(std::size_t count, std::size_t line) const {
    const std::size_t lines = (count + line - 1) / line;
    const auto bound = [&](int k) {
      return std::min(count, lines * static_cast<std::size_t>(k) / static_cast<std::size_t>(workers_) * line);
    };
    return {bound(config_.rank), bound(config_.rank + 1)};
  }

  void move(const Operation& operation) {
    if (config_.rank >= workers_) return;
    switch (operation.collective) {
      case Collective::all_reduce: return all_reduce(operation);
      case Collective::broadcast: return broadcast(operation);
      case Collective::all_gather: return all_gather(operation);
      case Collective::reduce_scatter: return reduce_scatter(operation);
      case Collective::barrier: return;
    }
  }

  void all_reduce(const Operation& operation) {
    const auto [begin, end] = share(operation.shape.output_count, 16);
    if (config_.size == 2)
      return sum_two(theirs<float>(operation.output, 0) + begin, theirs<float>(operation.output, 1) + begin,
                     end - begin);
    const std::vector<const float*> inputs = all_inputs(operation);
    float total[kBlock];
    for (std::size_t at = begin; at < end; at += kBlock) {
      const std::size_t n = std::min(kBlock, end - at);
      sum_block(inputs, at, n, total);
      for (int r = 0; r < config_.size; ++r) std::copy_n(total, n, theirs<float>(operation.output, r) + at);
    }
  }

  void reduce_scatter(const Operation& operation) {
    const std::vector<const float*> inputs = all_inputs(operation);
    const std::size_t part = operation.shape.output_count;
    const auto [begin, end] = share(operation.shape.input_count, 16);
    float total[kBlock];
    for (std::size_t at = begin; at < end;) {
      const std::size_t owner = at / part;
      const std::size_t n = std::min({kBlock, end - at, (owner + 1) * part - at});
      sum_block(inputs, at, n, total);
      std::copy_n(total, n, theirs<float>(operation.output, static_cast<int>(owner)) + (at - owner * part));
      at += n;
    }
  }

  void broadcast(const Operation& operation) {
    const auto [begin, end] = share(operation.shape.bytes, 64);
    for (int r = 0; r < config_.size; ++r) {
      if (r != kRoot)
        std::memcpy(theirs<std::byte>(operation.output, r) + begin, theirs<std::byte>(operation.output, kRoot) + begin,
                    end - begin);
    }
  }

  void all_gather(const Operation& operation) {
    const std::size_t part = operation.shape.input_count * element_size(operation.dtype);
    const auto [begin, end] = share(part, 64);
    for (int to = 0; to < config_.size; ++to) {
      for (int from = 0; from < config_.size; ++from)
        std::memcpy(theirs<std::byte>(operation.output, to) + static_cast<std::size_t>(from) * part + begin,
                    theirs<std::byte>(operation.input, from) + begin, end - begin);
    }
  }

  std::vector<const float*> all_inputs(const Operation& operation) const {
    std::vector<const float*> inputs;
    for (int r = 0; r < config_.size; ++r) inputs.push_back(theirs<const float>(operation.input, r));
    return inputs;
  }

  // Between ranks 0 and 1. release and acquire of `ping` and of `pong` are each other's partners.
  void ping_pong() {
    if (config_.rank > 1) return;
    SharedPage& page = shared_.page();
    for (int i = 0; i < kRoundTrips; ++i) {
      ++turn_;
      if (config_.rank == 0) {
        page.ping.store(turn_, std::memory_order_release);
        while (page.pong.load(std::memory_order_acquire) != turn_) {
        }
      } else {
        while (page.ping.load(std::memory_order_acquire) != turn_) {
        }
        page.pong.store(turn_, std::memory_order_release);
      }
    }
  }

  const WorkerConfig& config_;
  SharedMapping shared_;
  StartLine line_;
  int workers_ = 1;
  std::uint64_t turn_ = 0;
};

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return worker_main(argc, argv, [](const WorkerConfig& config) { return std::make_unique<MemoryLimit>(config); });
}
