#include "bench/worker/worker.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "bench/worker/channel.h"
#include "bench/worker/pattern.h"
#include "bench/worker/rotation.h"
#include "bench/worker/start_line.h"

namespace lockstep::bench {
namespace {

double process_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void fill(const Pattern& pattern, const Operation& operation, int rank, std::uint64_t iteration) {
  if (operation.collective == Collective::barrier) return;
  pattern.fill(operation.input, 0, operation.shape.input_count, rank, iteration);
}

std::uint64_t count_wrong(const Pattern& pattern, const Operation& operation, int rank, std::uint64_t iteration) {
  const Shape& shape = operation.shape;
  switch (operation.collective) {
    case Collective::all_reduce: return pattern.wrong_sums(operation.output, 0, shape.output_count, iteration);
    case Collective::broadcast: return pattern.wrong_copies(operation.output, 0, shape.output_count, kRoot, iteration);
    case Collective::reduce_scatter:
      return pattern.wrong_sums(operation.output, static_cast<std::size_t>(rank) * shape.output_count,
                                shape.output_count, iteration);
    case Collective::all_gather: {
      std::uint64_t wrong = 0;
      const auto* part = static_cast<const std::byte*>(operation.output);
      for (int from = 0; from < pattern.ranks(); ++from, part += shape.input_count * element_size(operation.dtype))
        wrong += pattern.wrong_copies(part, 0, shape.input_count, from, iteration);
      return wrong;
    }
    case Collective::barrier: return 0;
  }
  return 0;
}

bool same_on_all_ranks(Collective collective) {
  return collective != Collective::reduce_scatter && collective != Collective::barrier;
}

class Worker {
 public:
  Worker(const WorkerConfig& config, Engine& engine)
      : config_(config),
        engine_(engine),
        shared_(config.shared, kSharedPageBytes),
        line_(shared_.page(), config.size, !config.cores.empty()) {
    add_arena(Memory::private_memory);
    if (config.registered) add_arena(Memory::registered);
  }

  Reply run(const Command& command) {
    Reply reply;
    reply.error = engine_.refusal(command.collective, command.dtype);
    if (!reply.error.empty()) return reply;
    auto& arena = arenas_[static_cast<std::size_t>(command.memory)];
    if (!arena) throw BenchError("this worker has no memory of the requested kind");
    if (!pattern_ || pattern_->dtype() != command.dtype) pattern_.emplace(command.dtype, config_.size);
    const Shape shape = shape_of(command.collective, command.dtype, config_.size, command.bytes);
    for (std::uint32_t i = 0; i < command.warmup + command.iterations; ++i) {
      const Operation operation = arena->next(command.collective, command.dtype, shape, command.cold);
      run_once(operation, i >= command.warmup, reply);
    }
    return reply;
  }

 private:
  void add_arena(Memory memory) {
    std::byte* const data = engine_.allocate(config_.arena, memory);
    arenas_[static_cast<std::size_t>(memory)].emplace(data, config_.arena);
    touch(data);
  }

  // Uses the whole arena once, so that page faults in this process and in the peers' mappings of
  // it happen before anything is timed.
  void touch(std::byte* data) {
    std::memset(data, 0, config_.arena);
    constexpr std::size_t kPiece = std::size_t{16} << 20;
    for (std::size_t at = 0; at < config_.arena; at += kPiece) {
      const Shape shape =
          shape_of(Collective::all_reduce, DType::f32, config_.size, std::min(kPiece, config_.arena - at));
      line_.arrive();
      const Operation operation{Collective::all_reduce, DType::f32, shape, data + at, data + at};
      engine_.bind(operation)();
      engine_.settle(operation);
    }
    line_.arrive();
  }

  void run_once(const Operation& operation, bool timed, Reply& reply) {
    const std::uint64_t iteration = iteration_++;
    fill(*pattern_, operation, config_.rank, iteration);
    const std::function<void()> call = engine_.bind(operation);
    const std::int64_t start = line_.arrive();
    const double cpu_before = process_cpu_seconds();
    StartLine::wait_for(start);
    call();
    const std::int64_t end = now_ns();
    const double cpu_after = process_cpu_seconds();
    // A rank that is done must not check its result yet: if ranks share cores, another rank may need
    // this core to finish, and a thread of the engine may still have to send. The check would be timed there.
    line_.arrive();
    engine_.settle(operation);
    reply.wrong += count_wrong(*pattern_, operation, config_.rank, iteration);
    if (same_on_all_ranks(operation.collective))
      reply.digests.push_back(digest(operation.output, operation.shape.output_count * element_size(operation.dtype)));
    if (!timed) return;
    const double operations = engine_.operations_per_call(operation);
    reply.seconds.push_back(static_cast<double>(end - start) * 1e-9 / operations);
    reply.cpu_seconds += (cpu_after - cpu_before) / operations;
  }

  const WorkerConfig& config_;
  Engine& engine_;
  SharedMapping shared_;
  StartLine line_;
  std::optional<Rotation> arenas_[2];  // by Memory
  std::optional<Pattern> pattern_;
  std::uint64_t iteration_ = 0;  // equal on all ranks, because all run the same commands
};

}  // namespace

void Engine::Unmap::operator()(std::byte* data) const { ::munmap(data, bytes); }

std::byte* Engine::allocate(std::size_t bytes, Memory memory) {
  if (memory == Memory::registered) throw BenchError("this engine has no registered memory");
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    throw BenchError("cannot allocate " + std::to_string(bytes) + " bytes of buffers: " + std::strerror(errno));
  private_memory_.push_back(std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(data), Unmap{bytes}));
  return private_memory_.back().get();
}

int run_worker(const WorkerConfig& config, Engine& engine) {
  Channel channel = Channel::connect(config.socket);
  channel.send(Hello{config.rank, static_cast<std::int32_t>(::getpid())});
  Worker worker(config, engine);
  channel.send(Reply{});  // ready
  for (;;) {
    const Command command = channel.receive_command();
    if (command.kind == CommandKind::quit) return 0;
    Reply reply;
    try {
      reply = worker.run(command);
    } catch (const std::exception& error) {
      // The ranks no longer agree on the next command: report why, and end.
      reply.error = error.what();
      channel.send(reply);
      return 1;
    }
    channel.send(reply);
  }
}

int worker_main(int argc, char** argv, const std::function<std::unique_ptr<Engine>(const WorkerConfig&)>& make_engine) {
  try {
    const WorkerConfig config = configure_worker(argc, argv);
    const std::unique_ptr<Engine> engine = make_engine(config);
    return run_worker(config, *engine);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace lockstep::bench
