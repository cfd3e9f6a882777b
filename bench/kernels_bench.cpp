// The reduction kernels against memcpy and against the loop that a compiler vectorises, and the ways
// to copy through a staging buffer. Threads: each works on buffers of its own, on its own core.
#include <benchmark/benchmark.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "collectives/kernels/kernels.h"

namespace lockstep {
namespace {

void pin_to_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  sched_setaffinity(0, sizeof(set), &set);  // without the permission or the core: unpinned
}

struct Buffers {
  std::vector<std::vector<float>> memory;
  std::vector<const std::byte*> srcs;
  std::vector<std::byte*> dsts;

  // Zeros: sums of sums stay finite however often they are repeated.
  Buffers(std::size_t count, std::size_t bytes) : memory(count, std::vector<float>(bytes / sizeof(float))) {
    for (auto& buffer : memory) {
      srcs.push_back(reinterpret_cast<const std::byte*>(buffer.data()));
      dsts.push_back(reinterpret_cast<std::byte*>(buffer.data()));
    }
  }
};

void count_bytes(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

void in_place_two(benchmark::State& state, ReduceOp op, int divisor) {
  pin_to_core(state.thread_index());
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Buffers buffers(2, bytes);
  for (auto _ : state) {
    reduce(DType::f32, op, buffers.srcs, buffers.dsts, bytes / sizeof(float), divisor);
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes);
}

#if defined(__x86_64__) && defined(__clang__)
__attribute__((target("avx2"), noinline))
#elif defined(__x86_64__)
__attribute__((target("avx2"), optimize("O3"), noinline))
#endif
void simple_loop(float* __restrict a, float* __restrict b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float t = a[i] + b[i];
    a[i] = t;
    b[i] = t;
  }
}

void simple_loop_two(benchmark::State& state) {
  pin_to_core(state.thread_index());
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Buffers buffers(2, bytes);
  for (auto _ : state) {
    simple_loop(buffers.memory[0].data(), buffers.memory[1].data(), bytes / sizeof(float));
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes);
}

void memcpy_one(benchmark::State& state) {
  pin_to_core(state.thread_index());
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Buffers buffers(2, bytes);
  for (auto _ : state) {
    std::memcpy(buffers.dsts[0], buffers.srcs[1], bytes);
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes);
}

// range(0) sources to range(1) of the same buffers, 1 MiB each.
void many(benchmark::State& state) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  Buffers buffers(static_cast<std::size_t>(state.range(0)), kBytes);
  const std::span<std::byte* const> dsts(buffers.dsts.data(), static_cast<std::size_t>(state.range(1)));
  for (auto _ : state) {
    reduce(DType::f32, ReduceOp::sum, buffers.srcs, dsts, kBytes / sizeof(float));
    benchmark::ClobberMemory();
  }
  count_bytes(state, kBytes * buffers.srcs.size());
}

void dtype_and_op(benchmark::State& state, DType dtype, ReduceOp op, int divisor) {
  constexpr std::size_t kBytes = std::size_t{256} << 10;
  Buffers buffers(2, kBytes);
  for (auto _ : state) {
    reduce(dtype, op, buffers.srcs, buffers.dsts, kBytes / element_size(dtype), divisor);
    benchmark::ClobberMemory();
  }
  count_bytes(state, kBytes);
}

using Copy = void (*)(std::byte* dst, const std::byte* src, std::size_t bytes);

void plain_copy(std::byte* dst, const std::byte* src, std::size_t bytes) { std::memcpy(dst, src, bytes); }

// Two threads send each other 16 MiB of private memory at the same time through two staging slots of
// range(0) bytes each. The counters are the medians of single copies, in microseconds: they hold on a
// machine that is also busy with other things.
struct Channel {
  explicit Channel(std::size_t slot) : staging(2 * slot / sizeof(float)) {}
  std::vector<float> staging;
  alignas(64) std::atomic<std::size_t> written{0};
  alignas(64) std::atomic<std::size_t> read{0};
};
std::unique_ptr<Channel> channels[2];

double median_us(std::vector<double>& seconds) {
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<long>(seconds.size() / 2), seconds.end());
  return seconds[seconds.size() / 2] * 1e6;
}

double timed(Copy copy, std::byte* dst, const std::byte* src, std::size_t bytes) {
  const auto start = std::chrono::steady_clock::now();
  copy(dst, src, bytes);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void staged(benchmark::State& state, Copy in, Copy out) {
  constexpr std::size_t kTotal = std::size_t{16} << 20;
  const int me = state.thread_index();
  pin_to_core(me);
  const auto slot = static_cast<std::size_t>(state.range(0));
  Buffers own(2, kTotal);
  std::vector<double> in_times, out_times;
  std::size_t sent = 0, received = 0, end = 0;
  for (auto _ : state) {
    Channel& to = *channels[me];
    Channel& from = *channels[1 - me];
    end += kTotal / slot;
    while (sent < end || received < end) {
      if (sent < end && sent < to.read.load(std::memory_order_acquire) + 2) {
        std::byte* at = reinterpret_cast<std::byte*>(to.staging.data()) + sent % 2 * slot;
        in_times.push_back(timed(in, at, own.srcs[0] + sent * slot % kTotal, slot));
        to.written.store(++sent, std::memory_order_release);  // with the load below
      }
      if (received < end && from.written.load(std::memory_order_acquire) > received) {
        const std::byte* at = reinterpret_cast<const std::byte*>(from.staging.data()) + received % 2 * slot;
        out_times.push_back(timed(out, own.dsts[1] + received * slot % kTotal, at, slot));
        from.read.store(++received, std::memory_order_release);  // with the load above
      }
    }
  }
  count_bytes(state, kTotal);
  state.counters["in_us"] = benchmark::Counter(median_us(in_times), benchmark::Counter::kAvgThreads);
  state.counters["out_us"] = benchmark::Counter(median_us(out_times), benchmark::Counter::kAvgThreads);
}

void make_channels(const benchmark::State& state) {
  for (auto& channel : channels) channel = std::make_unique<Channel>(static_cast<std::size_t>(state.range(0)));
}

void sizes(benchmark::internal::Benchmark* b) {
  b->Arg(64 << 10)->Arg(1 << 20)->Arg(64 << 20)->Threads(1)->Threads(2)->UseRealTime();
}
void slots(benchmark::internal::Benchmark* b) {
  b->Setup(make_channels)->Arg(16 << 10)->Arg(128 << 10)->Arg(512 << 10)->Threads(2)->UseRealTime();
}

BENCHMARK_CAPTURE(in_place_two, sum, ReduceOp::sum, 1)->Apply(sizes);
BENCHMARK_CAPTURE(in_place_two, avg_by_2, ReduceOp::avg, 2)->Apply(sizes);
BENCHMARK_CAPTURE(in_place_two, avg_by_3, ReduceOp::avg, 3)->Apply(sizes);
BENCHMARK(simple_loop_two)->Apply(sizes);
BENCHMARK(memcpy_one)->Apply(sizes);
BENCHMARK(many)->Args({2, 1})->Args({3, 1})->Args({4, 1})->Args({4, 4})->Args({8, 1})->Args({8, 8})->Args({16, 16});
BENCHMARK_CAPTURE(dtype_and_op, f64_sum, DType::f64, ReduceOp::sum, 1);
BENCHMARK_CAPTURE(dtype_and_op, f16_avg, DType::f16, ReduceOp::avg, 2);
BENCHMARK_CAPTURE(dtype_and_op, bf16_avg, DType::bf16, ReduceOp::avg, 2);
BENCHMARK_CAPTURE(dtype_and_op, f32_prod, DType::f32, ReduceOp::prod, 1);
BENCHMARK_CAPTURE(dtype_and_op, f32_max, DType::f32, ReduceOp::max, 1);
BENCHMARK_CAPTURE(dtype_and_op, i32_sum, DType::i32, ReduceOp::sum, 1);
BENCHMARK_CAPTURE(dtype_and_op, i32_avg, DType::i32, ReduceOp::avg, 3);
BENCHMARK_CAPTURE(dtype_and_op, i64_prod, DType::i64, ReduceOp::prod, 1);
BENCHMARK_CAPTURE(dtype_and_op, i64_avg, DType::i64, ReduceOp::avg, 3);
BENCHMARK_CAPTURE(dtype_and_op, u8_prod, DType::u8, ReduceOp::prod, 1);
BENCHMARK_CAPTURE(dtype_and_op, u8_max, DType::u8, ReduceOp::max, 1);
BENCHMARK_CAPTURE(staged, memcpy_memcpy, plain_copy, plain_copy)->Apply(slots);
BENCHMARK_CAPTURE(staged, copy_bytes_memcpy, copy_bytes, plain_copy)->Apply(slots);
BENCHMARK_CAPTURE(staged, copy_bytes_copy_bytes, copy_bytes, copy_bytes)->Apply(slots);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
