#include "mpi/mpi_communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>
#include <thread>

#include "base/log.h"
#include "base/start_thread.h"
#include "communicator/communicator_impl.h"
#include "mpi/operation_builder.h"

namespace lockstep::mpi {

Result<std::shared_ptr<MpiCommunicator>> MpiCommunicator::create_world(const std::string& backend,
                                                                       const CommunicatorOptions& options) {
  Result<MpiWorld> world = form_world(backend, options);
  if (!world.ok()) return world.status();
  return make(*world, options.name, options.timeout);
}

std::shared_ptr<MpiCommunicator> MpiCommunicator::make(const MpiWorld& world, const std::string& name,
                                                       std::chrono::milliseconds timeout) {
  auto state = std::make_shared<State>();
  state->job = world.job;
  state->watch = world.watch;
  state->outer = Communicator::Impl::watch_outer(*world.watch);
  state->comm = world.comm;
  state->library = world.job->engine->world().version;
  state->timeout = timeout;
  const std::string full_name = fmt::format("group '{}' ({} ranks, {})", name, world.watch->size(), state->library);
  // The channel's callbacks are the job's: the job outlives the channel, which close() takes out of it. They do not
  // keep the watch group alive, which must end before the job's store.
  MpiJob* const job = world.job.get();
  const std::weak_ptr<Communicator> watched = world.watch;
  const std::weak_ptr<OuterOperations> operations = state->outer;
  state->channel = std::make_shared<Channel>(Channel::Settings{
      .mpi = &job->engine->mpi(),
      .name = full_name,
      .health =
          [watched, job] {
            const auto watch = watched.lock();
            const Status health = watch ? watch->health() : Status();
            job->engine->note(health);
            return health;
          },
      .notify_peers =
          [watched, job](const Status& reason) {
            job->engine->note(reason);
            if (const auto watch = watched.lock()) watch->abort(reason);
          },
      .look =
          [operations](const std::optional<OuterOperations::Pending>& oldest) {
            const auto outer = operations.lock();
            return outer ? outer->look(oldest) : Status();
          },
      .completed =
          [operations](const OpDescriptor& op) {
            if (const auto outer = operations.lock()) outer->completed(op);
          },
      .wake = [job] { job->engine->thread().wake(); },
      .abandon = [job](std::vector<ChannelOperation> left) { job->engine->abandon(std::move(left)); }});
  job->engine->thread().add(state->channel);
  return std::shared_ptr<MpiCommunicator>(new MpiCommunicator(std::move(state)));
}

MpiCommunicator::~MpiCommunicator() {
  if (state_->job->engine->thread().is_current()) {
    // The last owner was a continuation. The progress thread cannot wait for itself.
    auto thread = start_thread("frees a communicator of MPI", [state = state_] { close(*state); });
    if (thread.ok()) {
      thread->detach();
    } else {
      log_warn("a communicator of MPI is not freed: {}", thread.status().message());
      state_->outer->leave();
      static_cast<void>(std::make_unique<std::shared_ptr<State>>(state_).release());  // the engine may still use it
    }
  } else {
    close(*state_);
  }
}

void MpiCommunicator::close(const State& state) {
  state.channel->drain();
  state.outer->leave();  // before MPI_Comm_free, which may wait for the others
  state.job->engine->note(state.watch->health());
  if (state.channel->failure().ok()) {
    const Status freed = state.job->engine->run(
        "MPI_Comm_free", [mpi = &state.job->engine->mpi(), comm = state.comm] { return mpi->free_comm(comm); },
        Deadline::after(std::chrono::seconds(10)));
    if (!freed.ok()) log_debug("{}", freed.to_string());
  } else {
    MpiEngine::abandon(state.comm);
  }
  state.job->engine->thread().remove(state.channel);
}

std::string MpiCommunicator::describe() const {
  return fmt::format("{}over {}\n", state_->watch->describe(), state_->library);
}

Result<std::shared_ptr<MpiCommunicator>> MpiCommunicator::new_group(std::span<const int> ranks,
                                                                    const std::string& name) {
  LOCKSTEP_RETURN_IF_ERROR(health());
  MpiWorld world{.job = state_->job, .comm = nullptr, .watch = nullptr};
  const std::vector<int> list(ranks.begin(), ranks.end());
  try {
    // First, because it checks the list and waits for the members with a deadline; creating a communicator cannot.
    world.watch = state_->watch->new_group(list, name);
  } catch (const Error& error) {
    return error.status();
  }
  auto comm = std::make_shared<lockstep_mpi_comm*>(nullptr);
  const auto create = [mpi = &world.job->engine->mpi(), parent = state_->comm, list, comm] {
    return mpi->create_group(parent, list.data(), static_cast<int>(list.size()), comm.get());
  };
  const Status created = world.job->engine->run(fmt::format("new_group({})", fmt::join(list, ", ")), create,
                                                Deadline::after(std::chrono::minutes(1)));
  if (!created.ok()) {
    world.job->engine->set_failed();
    return created;
  }
  world.comm = *comm;
  return make(world, world.watch->name(), state_->timeout);
}

void MpiCommunicator::abort(const std::string& reason) {
  state_->watch->abort(reason);
  state_->job->engine->set_doubtful();
  state_->channel->fail(state_->watch->health(), false);
}

Status MpiCommunicator::health() const {
  if (const Status failure = state_->channel->failure(); !failure.ok()) return failure;
  return state_->watch->health();
}

Work MpiCommunicator::submit(const Operation& operation, Memory memory) {
  const OperationContext context{.mpi = &state_->job->engine->mpi(),
                                 .comm = state_->comm,
                                 .library = library(),
                                 .rank = rank(),
                                 .size = size(),
                                 .highest_tag = state_->job->engine->world().highest_tag,
                                 .timeout = state_->timeout};
  return state_->channel->submit(build_operation(operation, context, std::move(memory)));
}

}  // namespace lockstep::mpi
