#include "mpi/mpi_engine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <future>
#include <optional>

#include "base/log.h"
#include "collectives/kernels/kernels.h"
#include "rendezvous/process_identity.h"

namespace lockstep::mpi {
namespace {

using Clock = Deadline::Clock;
using std::chrono::milliseconds;

// How long a process that exits waits for the others in MPI_Finalize: if all groups were destroyed, and if one is in
// use or has failed.
constexpr std::chrono::minutes kFinalizeLimit{5};
constexpr std::chrono::seconds kFinalizeLimitInDoubt{5};
constexpr std::chrono::seconds kAfterAnEnd{2};
constexpr milliseconds kHopelessInterval{100};
constexpr std::chrono::microseconds kCopyPoll{50};  // while a copy of MPI_COMM_WORLD is made

// What MPI may use until the process ends: never destroyed.
struct Abandoned {
  std::mutex mutex;
  std::vector<ChannelOperation> operations;       // guarded by mutex
  std::vector<lockstep_mpi_comm*> communicators;  // guarded by mutex
};

Abandoned& abandoned() {
  static auto* const all = new Abandoned;
  return *all;
}

struct Process {
  std::mutex mutex;
  std::weak_ptr<MpiEngine> current;  // guarded by mutex
  // MPI was started by us, or its start hangs: alive until the process ends. Guarded by mutex.
  std::shared_ptr<MpiEngine> kept;
  Status broken;           // guarded by mutex: why MPI cannot be used any more
  bool has_hooks = false;  // guarded by mutex
};

Process& process() {
  static Process* const value = new Process;  // used while the process exits
  return *value;
}

void combine(int dtype, int op, const void* operand, void* accumulator, std::size_t count) {
  const std::byte* const sources[] = {static_cast<const std::byte*>(operand), static_cast<std::byte*>(accumulator)};
  std::byte* const target[] = {static_cast<std::byte*>(accumulator)};
  reduce(static_cast<DType>(dtype), static_cast<ReduceOp>(op), sources, target, count);
}

const char* level_name(int level) {
  constexpr std::array names = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED",
                                "MPI_THREAD_MULTIPLE"};
  return names.at(static_cast<std::size_t>(level));
}

}  // namespace

Result<std::shared_ptr<MpiEngine>> MpiEngine::acquire(const std::string& backend, const Environment& environment,
                                                      Deadline deadline) {
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  if (!here.broken.ok()) return here.broken;
  if (auto engine = here.current.lock()) {
    if (backend != "mpi" && backend != engine->mpi().name) {
      return Status(StatusCode::invalid_argument,
                    fmt::format("this process uses MPI through \"{}\" already; \"{}\" cannot be "
                                "used beside it",
                                engine->mpi().name, backend));
    }
    return engine;
  }
  Result<Plugin> plugin = load_plugin(backend, environment);
  if (!plugin.ok()) return plugin.status();
  auto engine = std::make_shared<MpiEngine>(*plugin);
  const Status started = engine->start(deadline);
  if (!started.ok()) {
    // The thread is blocked in MPI_Init, or MPI has started and cannot be used: it cannot start again.
    if (started.code() == StatusCode::timed_out || (engine->world_.size > 0 && engine->world_.by_program == 0)) {
      here.broken = started;
      here.kept = std::move(engine);
    }
    return started;
  }
  here.current = engine;
  if (engine->world_.by_program == 0) here.kept = engine;
  if (!here.has_hooks) {
    LOCKSTEP_RETURN_IF_ERROR(engine->run(
        "MPI", [mpi = plugin->table] { return mpi->at_finalize(at_finalize); }, deadline));
    std::atexit(at_exit);
    here.has_hooks = true;
  }
  return engine;
}

Status MpiEngine::start(Deadline deadline) {
  LOCKSTEP_RETURN_IF_ERROR(thread_.start());
  auto found = std::make_shared<lockstep_mpi_world>();
  const auto before = Clock::now();
  const Status started = run(
      "starting MPI",
      [this, found] {
        const int code = plugin_.table->init(combine, found.get());
        has_world_ = found->size > 0;
        return code;
      },
      deadline);
  if (started.code() == StatusCode::timed_out) {
    return {
        StatusCode::timed_out,
        fmt::format(
            "MPI did not start within {}: MPI_Init waits for all processes that mpirun started, so probably not all of "
            "them call init_process_group() with this backend (or one has ended). All must ask for it",
            std::chrono::duration_cast<milliseconds>(Clock::now() - before))};
  }
  LOCKSTEP_RETURN_IF_ERROR(started);
  world_ = *found;
  if (world_.ended != 0) {
    return {StatusCode::closed,
            "MPI was finalised in this process before, and cannot start again: keep it until the last "
            "process group is destroyed"};
  }
  return check_threads();
}

Status MpiEngine::check_threads() const {
  const int needed = world_.by_program != 0 ? lockstep_mpi_serialized : lockstep_mpi_funneled;
  if (world_.threads >= needed) return {};
  if (world_.by_program == 0) {
    return {
        StatusCode::invalid_argument,
        fmt::format(
            "{} gives {}, but backend \"mpi\" needs at least {}, because a thread of its own makes the calls: use an "
            "MPI that was built with support for threads",
            world_.version, level_name(world_.threads), level_name(needed))};
  }
  return {StatusCode::invalid_argument,
          fmt::format(
              "the program has started MPI ({}) with {}, but backend \"mpi\" needs at least {}, because a thread of "
              "its own "
              "makes the calls: call MPI_Init_thread with MPI_THREAD_MULTIPLE (MPI_THREAD_SERIALIZED, if the program "
              "makes no calls of MPI while a process group exists), or leave starting MPI to init_process_group()",
              world_.version, level_name(world_.threads), level_name(needed))};
}

MpiEngine::~MpiEngine() {
  if (world_.by_program != 0) {
    // Not after MPI_Finalize: then the engine was retired, and run() refuses.
    const Status released = run(
        "MPI", [mpi = plugin_.table] { return mpi->release(); }, Deadline::after(std::chrono::seconds(5)));
    if (!released.ok()) log_debug("{}", released.to_string());
  }
  thread_.retire({StatusCode::closed, "MPI is not used any more"});
}

Status MpiEngine::run(std::string_view what, std::function<int()> call, Deadline deadline,
                      const std::function<bool()>& hopeless) {
  auto result = std::make_shared<std::promise<int>>();
  std::future<int> outcome = result->get_future();
  if (!thread_.post([call = std::move(call), result = std::move(result)] { result->set_value(call()); })) {
    return {StatusCode::closed, fmt::format("{}: MPI is not used any more", what)};
  }
  const auto next_look = [&] {
    return hopeless ? std::min(deadline.when(), Clock::now() + kHopelessInterval) : deadline.when();
  };
  while (outcome.wait_until(next_look()) != std::future_status::ready) {
    if (!deadline.expired() && !(hopeless && hopeless())) continue;
    return {StatusCode::timed_out, fmt::format("{}: MPI did not return in time", what)};
  }
  int code = 0;
  try {
    code = outcome.get();
  } catch (const std::future_error&) {  // dropped, because the engine has stopped
    return {StatusCode::closed, fmt::format("{}: MPI is not used any more", what)};
  }
  if (code == 0) return {};
  std::array<char, 1024> text{};
  mpi().error_text(code, text.data(), text.size());
  return {StatusCode::unavailable, fmt::format("{}: MPI returned error {}: {}", what, code, text.data())};
}

Result<lockstep_mpi_comm*> MpiEngine::copy_world(Deadline deadline) {
  struct Copy {
    lockstep_mpi_comm* comm = nullptr;
    bool timed_out = false;
  };
  auto copy = std::make_shared<Copy>();
  const auto make = [mpi = plugin_.table, copy, deadline]() -> int {
    lockstep_mpi_request* request = nullptr;
    if (int code = mpi->copy_world(&copy->comm, &request)) return code;
    for (int done = 0;;) {
      std::size_t received = 0;
      if (int code = mpi->test(request, &done, &received); code != 0 || done != 0) return code;
      if (deadline.expired()) return copy->timed_out = true, 0;
      std::this_thread::sleep_for(kCopyPoll);
    }
  };
  // A little longer than the loop above, whose error is more precise.
  const Status made =
      run("copying MPI_COMM_WORLD", make, Deadline::after(deadline.remaining() + std::chrono::seconds(2)));
  if (made.code() == StatusCode::timed_out || (made.ok() && copy->timed_out)) {
    set_failed();
    return Status(
        StatusCode::timed_out,
        fmt::format("not all {} processes of the job joined in time: every process that mpirun started must call "
                    "init_process_group() with this backend",
                    world_.size));
  }
  if (!made.ok()) return made;
  return copy->comm;
}

void MpiEngine::note(const Status& failure) {
  if (failure.ok()) return;
  if (failure.code() == StatusCode::peer_lost || failure.code() == StatusCode::unavailable) {
    set_failed();
  } else {
    set_doubtful();
  }
}

void MpiEngine::set_processes(MemberRecord self, std::vector<MemberRecord> all) {
  const std::lock_guard lock(mutex_);
  self_ = std::move(self);
  processes_ = std::move(all);
}

bool MpiEngine::a_process_has_ended() {
  const std::lock_guard lock(mutex_);
  return std::any_of(processes_.begin(), processes_.end(),
                     [this](const MemberRecord& other) { return known_to_have_ended(other, self_); });
}

void MpiEngine::abandon(std::vector<ChannelOperation> operations) {
  set_failed();
  const std::lock_guard lock(abandoned().mutex);
  for (ChannelOperation& operation : operations) abandoned().operations.push_back(std::move(operation));
}

void MpiEngine::abandon(lockstep_mpi_comm* communicator) {
  const std::lock_guard lock(abandoned().mutex);
  abandoned().communicators.push_back(communicator);
}

// The program finalises MPI. It does so on a thread of its own; ours does it only when no group exists.
void MpiEngine::at_finalize() {
  std::shared_ptr<MpiEngine> engine;
  {
    const std::lock_guard lock(process().mutex);
    engine = process().current.lock();
  }
  if (!engine || engine->thread_.is_current()) return;
  engine->set_failed();
  engine->thread_.retire(
      {StatusCode::closed, "the program has finalised MPI while a process group was in use: destroy the group first"});
}

void MpiEngine::at_exit() {
  std::shared_ptr<MpiEngine> engine;
  {
    const std::lock_guard lock(process().mutex);
    if (process().broken.ok()) engine = process().kept;
  }
  if (engine) engine->finish_at_exit();
}

void MpiEngine::finish_at_exit() {
  if (failed_ || thread_.is_current()) {
    log_debug("MPI is not finalised, because a group has failed");
    return;
  }
  const bool in_doubt = thread_.has_channels() || doubtful_;
  const auto finalize = [this] {
    const int released = mpi().release();
    const int code = released != 0 ? released : mpi().finalize();
    thread_.stop();
    return code;
  };
  // A process that has ended without MPI_Finalize never reaches it; one that reaches it ends when all have.
  std::optional<Clock::time_point> first_end;
  const auto hopeless = [&] {
    if (!first_end && a_process_has_ended()) first_end = Clock::now();
    return first_end && Clock::now() - *first_end > kAfterAnEnd;
  };
  const Deadline deadline = Deadline::after(in_doubt ? Clock::duration(kFinalizeLimitInDoubt) : kFinalizeLimit);
  const Status ended = run("MPI_Finalize", finalize, deadline, hopeless);
  if (ended.ok()) {
    thread_.join();  // it makes no more calls, and ends
  } else {
    log_warn("{}; not all processes have reached MPI_Finalize", ended.to_string());
  }
}

}  // namespace lockstep::mpi
