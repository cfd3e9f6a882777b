// A rank of a job over MPI, without torch. The argument selects what it does; it prints one line for each result.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <thread>

#include "mpi/mpi_communicator.h"

namespace lockstep::mpi {
namespace {

using std::chrono::milliseconds;
using World = std::shared_ptr<MpiCommunicator>;

// One write, so that the lines of several ranks do not mix.
void print_line(const std::string& text) {
  const std::string line = text + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("wrong: " + what);
}

CommunicatorOptions options() {
  CommunicatorOptions result;
  result.init_timeout = std::chrono::seconds(30);
  result.timeout = std::chrono::seconds(30);
  result.peer_timeout = std::chrono::seconds(2);
  return result;
}

World join(const CommunicatorOptions& how = options()) {
  return value_or_throw(MpiCommunicator::create_world("mpi", how));
}

template <typename T>
std::vector<T> numbers(std::size_t count, int rank) {
  std::vector<T> data(count);
  for (std::size_t i = 0; i < count; ++i)
    data[i] = static_cast<T>((i * 7 + static_cast<std::size_t>(rank) * 3) % 5 + 1);
  return data;
}

// What `op` makes of the numbers of all ranks; small whole numbers, exact in every type.
template <typename T>
T expected(std::size_t i, int size, ReduceOp op) {
  const auto value = [&](int rank) {
    return static_cast<std::int64_t>((i * 7 + static_cast<std::size_t>(rank) * 3) % 5 + 1);
  };
  std::int64_t result = value(0);
  for (int rank = 1; rank < size; ++rank) {
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg: result += value(rank); break;
      case ReduceOp::prod: result *= value(rank); break;
      case ReduceOp::min: result = std::min(result, value(rank)); break;
      case ReduceOp::max: result = std::max(result, value(rank)); break;
      case ReduceOp::bit_and: result &= value(rank); break;
      case ReduceOp::bit_or: result |= value(rank); break;
      case ReduceOp::bit_xor: result ^= value(rank); break;
    }
  }
  if (op != ReduceOp::avg) return static_cast<T>(result);
  return static_cast<T>(static_cast<T>(result) / static_cast<T>(size));
}

template <typename T>
void reduces(const World& world) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{100003}}) {
    for (int op = 0; op <= static_cast<int>(ReduceOp::bit_xor); ++op) {
      const auto reduce_op = static_cast<ReduceOp>(op);
      if (op >= static_cast<int>(ReduceOp::bit_and) && std::is_floating_point_v<T>) continue;
      const std::string what = fmt::format("{} of {} {}", to_string(reduce_op), count, to_string(dtype_of<T>()));
      auto data = numbers<T>(count, world->rank());
      world->submit(Operation::all_reduce(Buffer(std::span(data)), {.op = reduce_op})).wait();
      for (std::size_t i = 0; i < count; ++i)
        require(data[i] == expected<T>(i, world->size(), reduce_op), "all_reduce " + what);
      data = numbers<T>(count, world->rank());
      world->submit(Operation::reduce(Buffer(std::span(data)), world->size() - 1, {.op = reduce_op})).wait();
      for (std::size_t i = 0; i < count && world->rank() == world->size() - 1; ++i) {
        require(data[i] == expected<T>(i, world->size(), reduce_op), "reduce " + what);
      }
    }
  }
  const auto size = static_cast<std::size_t>(world->size());
  auto input = numbers<T>(size * 10, world->rank());
  std::vector<T> part(10);
  world
      ->submit(Operation::reduce_scatter(ConstBuffer(std::span(std::as_const(input))), Buffer(std::span(part)),
                                         {.op = ReduceOp::avg}))
      .wait();
  for (std::size_t i = 0; i < 10; ++i) {
    require(part[i] == expected<T>(static_cast<std::size_t>(world->rank()) * 10 + i, world->size(), ReduceOp::avg),
            "reduce_scatter");
  }
}

// 16-bit floats as bits: bf16 is the upper half of a float, f16 of the small whole numbers here is looked up.
void reduces_halves(const World& world) {
  const auto bfloat = [](float value) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return BFloat16{static_cast<std::uint16_t>(bits >> 16)};
  };
  std::vector<BFloat16> data(1001, bfloat(1.5F));
  world->submit(Operation::all_reduce(Buffer(std::span(data)))).wait();
  for (const BFloat16 value : data)
    require(value.bits == bfloat(1.5F * static_cast<float>(world->size())).bits, "sum of bf16");
  std::vector<Float16> half(1001, Float16{0x4000});  // 2
  world->submit(Operation::all_reduce(Buffer(std::span(half)), {.op = ReduceOp::avg})).wait();
  for (const Float16 value : half) require(value.bits == 0x4000, "avg of f16");
  // Rounded once: 60000 + 60000 is no f16, its half is; 2048 + 1 + 1 is 2050, and each addition rounded gives 2048.
  half.assign(1001, Float16{0x7b53});  // 60000 or so
  world->submit(Operation::all_reduce(Buffer(std::span(half)), {.op = ReduceOp::avg})).wait();
  for (const Float16 value : half) require(value.bits == 0x7b53, "avg of large f16");
  if (world->size() >= 3) {
    const auto bits = static_cast<std::uint16_t>(world->rank() == 0 ? 0x6800 : world->rank() < 3 ? 0x3c00 : 0);
    half.assign(1001, Float16{bits});
    world->submit(Operation::all_reduce(Buffer(std::span(half)))).wait();
    for (const Float16 value : half) require(value.bits == 0x6801, "sum of f16, rounded once");
    half.assign(1001, Float16{bits});
    world->submit(Operation::reduce(Buffer(std::span(half)), 1)).wait();
    for (const Float16 value : half) require(world->rank() != 1 || value.bits == 0x6801, "reduce of f16, rounded once");
    const std::vector<Float16> parts(7 * static_cast<std::size_t>(world->size()), Float16{bits});
    std::vector<Float16> part(7);
    world->submit(Operation::reduce_scatter(ConstBuffer(std::span(parts)), Buffer(std::span(part)))).wait();
    for (const Float16 value : part) require(value.bits == 0x6801, "reduce_scatter of f16, rounded once");
  }
  half.assign(1001, Float16{static_cast<std::uint16_t>(world->rank() == 0 ? 0x7e00 : 0x4000)});  // NaN on one rank
  world->submit(Operation::all_reduce(Buffer(std::span(half)), {.op = ReduceOp::max})).wait();
  for (const Float16 value : half) require(value.bits == 0x7e00, "NaN wins in max");
  std::vector<float> floats(100, world->rank() == 1 ? std::nanf("") : 1.0F);
  world->submit(Operation::all_reduce(Buffer(std::span(floats)), {.op = ReduceOp::min})).wait();
  for (const float value : floats) require(value != value, "NaN wins in min");
}

void moves(const World& world) {
  const auto size = static_cast<std::size_t>(world->size());
  const auto rank = static_cast<std::size_t>(world->rank());
  std::vector<std::int32_t> mine(100, world->rank());
  std::vector<std::int32_t> all(100 * size);
  world->submit(Operation::all_gather(ConstBuffer(std::span(std::as_const(mine))), Buffer(std::span(all)))).wait();
  for (std::size_t i = 0; i < all.size(); ++i) require(all[i] == static_cast<int>(i / 100), "all_gather");
  // In place: this rank's block is in the output already.
  std::fill(all.begin(), all.end(), -1);
  std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(rank * 100), 100, world->rank());
  world->submit(Operation::all_gather(ConstBuffer(all.data() + rank * 100, 100, DType::i32), Buffer(std::span(all))))
      .wait();
  for (std::size_t i = 0; i < all.size(); ++i) require(all[i] == static_cast<int>(i / 100), "all_gather in place");

  std::vector<std::size_t> counts(size);
  std::iota(counts.begin(), counts.end(), std::size_t{0});  // rank 0 gives nothing
  std::vector<std::int64_t> ragged(counts[rank], world->rank());
  std::vector<std::int64_t> joined(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  world
      ->submit(
          Operation::all_gather_v(ConstBuffer(std::span(std::as_const(ragged))), Buffer(std::span(joined)), counts))
      .wait();
  std::size_t at = 0;
  for (std::size_t from = 0; from < size; ++from) {
    for (std::size_t i = 0; i < counts[from]; ++i) require(joined[at++] == static_cast<int>(from), "all_gather_v");
  }

  std::vector<std::int32_t> parts(4 * size);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = static_cast<int>(100 * rank + i / 4);
  std::vector<std::int32_t> received(4 * size);
  world->submit(Operation::all_to_all(ConstBuffer(std::span(std::as_const(parts))), Buffer(std::span(received))))
      .wait();
  for (std::size_t i = 0; i < received.size(); ++i)
    require(received[i] == static_cast<int>(100 * (i / 4) + rank), "all_to_all");

  std::vector<std::uint8_t> bytes(3, static_cast<std::uint8_t>(world->rank()));
  std::vector<std::uint8_t> gathered(rank == 1 ? 3 * size : 0);
  world->submit(Operation::gather(ConstBuffer(std::span(std::as_const(bytes))), Buffer(std::span(gathered)), 1)).wait();
  for (std::size_t i = 0; i < gathered.size(); ++i) require(gathered[i] == i / 3, "gather");
  std::vector<std::uint8_t> share(3);
  world->submit(Operation::scatter(ConstBuffer(std::span(std::as_const(gathered))), Buffer(std::span(share)), 1))
      .wait();
  require(share == bytes, "scatter");
  std::vector<double> news(5, world->rank() == 1 ? 2.5 : 0);
  world->submit(Operation::broadcast(Buffer(std::span(news)), 1)).wait();
  require(news == std::vector<double>(5, 2.5), "broadcast");
  world->submit(Operation::barrier()).wait();
}

void messages(const World& world) {
  const int next = (world->rank() + 1) % world->size();
  const int before = (world->rank() + world->size() - 1) % world->size();
  std::vector<float> small(3, static_cast<float>(world->rank())),
      large(1 << 18, static_cast<float>(world->rank() + 10));
  std::vector<float> got_small(3), got_large(1 << 18);
  // Matched by tag, not by order.
  const Work works[] = {world->submit(Operation::recv(Buffer(std::span(got_large)), before, 2)),
                        world->submit(Operation::recv(Buffer(std::span(got_small)), before, 1)),
                        world->submit(Operation::send(ConstBuffer(std::span(std::as_const(small))), next, 1)),
                        world->submit(Operation::send(ConstBuffer(std::span(std::as_const(large))), next, 2))};
  for (const Work& work : works) work.wait();
  require(got_small[2] == static_cast<float>(before), "small message");
  require(got_large.back() == static_cast<float>(before + 10), "large message");
  try {
    world->submit(Operation::send(ConstBuffer(std::span(std::as_const(small))), next, -1));
    require(false, "a negative tag was taken");
  } catch (const Error& error) {
    require(error.code() == StatusCode::invalid_argument, error.what());
  }
}

void subgroups(const World& world) {
  const std::vector<int> even = {0, 2}, odd = {3, 1};
  const bool is_even = world->rank() % 2 == 0;
  const World half = value_or_throw(world->new_group(is_even ? even : odd, "half"));
  require(half->rank() == (is_even ? world->rank() / 2 : world->rank() == 3 ? 0 : 1), "order of the list");
  double sum = world->rank();
  const Work of_half = half->submit(Operation::all_reduce(Buffer(std::span(&sum, 1))));
  double total = 1;
  const Work of_all = world->submit(Operation::all_reduce(Buffer(std::span(&total, 1))));
  of_half.wait();
  of_all.wait();
  require(sum == (is_even ? 2 : 4) && total == world->size(), "sums of half and whole");
}

int collectives() {
  const World world = join();
  reduces<float>(world);
  reduces<double>(world);
  reduces<std::int8_t>(world);
  reduces<std::uint8_t>(world);
  reduces<std::int32_t>(world);
  reduces<std::int64_t>(world);
  reduces_halves(world);
  moves(world);
  messages(world);
  if (world->size() == 4) subgroups(world);
  require(world->local_size() == world->size(), "one host");
  print_line(fmt::format("rank {} of {}: all right", world->rank(), world->size()));
  return 0;
}

int threads_of_this_process() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "Threads:" && status >> word) return std::stoi(word);
  }
  return -1;
}

// Forms the default group several times in one process; the number of threads does not grow.
int again() {
  std::vector<int> threads;
  for (int round = 0; round < 4; ++round) {
    World world = join();
    float sum = 1;
    world->submit(Operation::all_reduce(Buffer(std::span(&sum, 1)))).wait();
    require(sum == static_cast<float>(world->size()), "sum");
    world.reset();
    threads.push_back(threads_of_this_process());
  }
  require(threads.back() <= threads[1], fmt::format("{} threads, then {}", threads[1], threads.back()));
  print_line("formed again");
  return 0;
}

// Works until something fails, and prints what. The exit code is 0, so that mpirun does not end the others.
int until_failure(const World& world, const std::function<void(int step)>& before_step) {
  try {
    for (int step = 0;; ++step) {
      before_step(step);
      std::vector<float> data(200000, 1);
      world->submit(Operation::all_reduce(Buffer(std::span(data)), {.timeout = std::chrono::seconds(20)})).wait();
    }
  } catch (const Error& error) {
    print_line(fmt::format("rank {} threw {}", world->rank(), error.what()));
  }
  double data = 1;
  const Status later =
      world->submit(Operation::all_reduce(Buffer(std::span(&data, 1)))).wait(Deadline::after(std::chrono::seconds(5)));
  print_line(fmt::format("rank {} later: {}", world->rank(), to_string(later.code())));
  return 0;
}

int killed() {
  const World world = join();
  return until_failure(world, [&](int step) {
    if (step != 5 || world->rank() != 1) return;
    print_line(fmt::format("rank 1 is pid {}", ::getpid()));
    ::raise(SIGKILL);
  });
}

int stopped() {
  const World world = join();
  if (world->rank() == 1) print_line(fmt::format("pid of rank 1: {}", ::getpid()));
  return until_failure(world, [&](int step) {
    if (step != 5) return;
    if (world->rank() == 1) ::raise(SIGSTOP);
  });
}

int aborted() {
  const World world = join();
  return until_failure(world, [&](int step) {
    if (step == 5 && world->rank() == 1) world->abort("the loss is not a number");
  });
}

int late() {
  const World world = join();
  try {
    for (int step = 0; step < 3; ++step) world->submit(Operation::barrier()).wait();
    if (world->rank() == 2) std::this_thread::sleep_for(std::chrono::seconds(3));
    world->submit(Operation::barrier({.timeout = milliseconds(1000)})).wait();
  } catch (const Error& error) {
    print_line(fmt::format("rank {} threw {}", world->rank(), error.what()));
    return 0;
  }
  return 1;
}

int different() {
  const World world = join();
  float data[8] = {};
  try {
    world->submit(Operation::barrier()).wait();
    if (world->rank() == 1) {
      world->submit(Operation::broadcast(Buffer(std::span(data)), 0)).wait();
      world->submit(Operation::barrier()).wait();
    } else {
      world->submit(Operation::all_reduce(Buffer(std::span(data)))).wait();
      world->submit(Operation::barrier()).wait();
    }
  } catch (const Error& error) {
    print_line(fmt::format("rank {} threw {}", world->rank(), error.what()));
    return 0;
  }
  return 1;
}

int leaves() {
  World world = join();
  world->submit(Operation::barrier()).wait();
  if (world->rank() == 1) {
    world.reset();
    return 0;
  }
  try {
    world->submit(Operation::barrier()).wait();
  } catch (const Error& error) {
    print_line(fmt::format("rank {} threw {}", world->rank(), error.what()));
    return 0;
  }
  return 1;
}

// Sends more than the other side takes: an error that MPI itself finds.
int truncated() {
  const World world = join();
  std::vector<float> data(1000);
  try {
    if (world->rank() == 0) world->submit(Operation::send(ConstBuffer(std::span(std::as_const(data))), 1, 0)).wait();
    if (world->rank() == 1) world->submit(Operation::recv(Buffer(std::span(data).first(10)), 0, 0)).wait();
    world->submit(Operation::barrier()).wait();
  } catch (const Error& error) {
    print_line(fmt::format("rank {} threw {}", world->rank(), error.what()));
    return 0;
  }
  return 1;
}

int not_all() {
  const char* const rank =
      std::getenv("OMPI_COMM_WORLD_RANK") ? std::getenv("OMPI_COMM_WORLD_RANK") : std::getenv("PMI_RANK");
  if (std::string(rank) == "1") {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    return 0;
  }
  CommunicatorOptions how = options();
  how.init_timeout = std::chrono::milliseconds(1500);
  const auto world = MpiCommunicator::create_world("mpi", how);
  print_line(fmt::format("rank {}: {}", rank, world.status().to_string()));
  std::_Exit(world.ok() ? 1 : 0);
}

// Ends without destroying anything, as programs do.
int forgets() {
  static World* const world = new World(join());
  (*world)->submit(Operation::barrier()).wait();
  print_line("done");
  return 0;
}

// Waits for nothing: how much processor time does that take?
int idles() {
  const World world = join();
  world->submit(Operation::barrier()).wait();
  const auto cpu = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  const double before = cpu();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  print_line(fmt::format("cpu {:.3f} s", cpu() - before));
  require(cpu() - before < 0.2, "an idle rank computes");
  world->submit(Operation::barrier()).wait();
  return 0;
}

}  // namespace
}  // namespace lockstep::mpi

int main(int argc, char** argv) {
  using namespace lockstep::mpi;
  const std::map<std::string, std::function<int()>> parts = {
      {"collectives", collectives}, {"again", again},     {"killed", killed},       {"stopped", stopped},
      {"aborted", aborted},         {"late", late},       {"different", different}, {"leaves", leaves},
      {"truncated", truncated},     {"not_all", not_all}, {"forgets", forgets},     {"idles", idles}};
  const auto part = parts.find(argc > 1 ? argv[1] : "");
  if (part == parts.end()) return 2;
  try {
    return part->second();
  } catch (const std::exception& error) {
    print_line(error.what());
    return 1;
  }
}
