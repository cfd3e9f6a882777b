#include <lockstep/communicator/communicator.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <set>
#include <thread>
#include <utility>

#include "base/crash_report.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "communicator/abandon_mesh.h"
#include "communicator/call_checks.h"
#include "communicator/collective_request.h"
#include "communicator/communicator_impl.h"
#include "communicator/registration.h"
#include "communicator/threads_hub.h"
#include "record/recorder.h"
#include "rendezvous/rendezvous.h"

namespace lockstep {
namespace {

// CommunicatorOptions::algorithm, or if it is empty, the environment.
std::string algorithm_overrides(const CommunicatorOptions& options) {
  if (!options.algorithm.empty()) return options.algorithm;
  const char* value = std::getenv("LOCKSTEP_ALGORITHM");
  return value != nullptr ? value : "";
}

void check_durations(const CommunicatorOptions& options) {
  const auto check = [](const char* name, std::chrono::milliseconds value) {
    if (value.count() > 0) return;
    throw Error(Status(StatusCode::invalid_argument,
                       fmt::format("CommunicatorOptions::{} is {} ms; it must be positive", name, value.count())));
  };
  check("init_timeout", options.init_timeout);
  check("timeout", options.timeout);
  check("peer_timeout", options.peer_timeout);
  check("warn_after", options.warn_after);
}

// Durations that programs use for "never" are too long for the clock's nanoseconds.
CommunicatorOptions limited(CommunicatorOptions options) {
  constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 365 * 100);
  for (auto* const duration : {&options.init_timeout, &options.timeout, &options.peer_timeout, &options.warn_after}) {
    *duration = std::min(*duration, kNever);
  }
  return options;
}

void check_membership(int rank, int world_size) {
  if (world_size >= 1 && rank >= 0 && rank < world_size) return;
  throw Error(Status(StatusCode::invalid_argument,
                     fmt::format("rank {} of world size {}: the world size must be at least 1, and the rank at least 0 "
                                 "and below it",
                                 rank, world_size)));
}

}  // namespace

Communicator::Impl::Impl(MeshFactory factory_, Mesh mesh, const CommunicatorOptions& options, Selector selector)
    : factory(std::move(factory_)),
      core(std::make_shared<GroupCore>(std::move(mesh), options, std::move(selector))),
      collectives(core),
      messages(core) {
  core->set_failure_listener([this] { messages.wake(); });
}

Communicator::Impl::~Impl() {
  collectives.close();
  messages.close();
  core->set_failure_listener(nullptr);
  core->leave();
}

IssuedCollective Communicator::Impl::request(const Operation& operation) const {
  return make_collective_request(operation, rank(), size(), core->options().timeout);
}

void Communicator::Impl::run(const Operation& operation) {
  if (is_collective(operation.kind)) return throw_if_error(collectives.run(request(operation)));
  submit_message(operation).wait();
}

Work Communicator::Impl::submit_message(const Operation& operation) {
  const std::string_view call = to_string(operation.kind);
  const bool sends = operation.kind == OperationKind::send;
  const bool from_any = !sends && operation.peer == kAnyRank && operation.source != nullptr;
  if (!from_any) check_rank(call, sends ? "destination" : "source", operation.peer, size());
  check_data(call, "buffer", sends ? operation.input : ConstBuffer(operation.output));
  const auto timeout = operation.timeout.value_or(core->options().timeout);
  if (sends) return messages.send(operation.input, operation.peer, operation.tag, timeout);
  if (from_any) return messages.recv_any(operation.output, operation.source, operation.tag, timeout);
  return messages.recv(operation.output, operation.peer, operation.tag, timeout);
}

std::shared_ptr<Communicator> Communicator::Impl::make(MeshFactory factory, const std::string& scope, int rank,
                                                       int size, const CommunicatorOptions& given) {
  check_durations(given);
  const CommunicatorOptions options = limited(given);
  Mesh mesh = value_or_throw(factory(scope, rank, size, Deadline::after(options.init_timeout)));
  auto selector = Selector::create(mesh.topology, algorithm_overrides(options));
  if (!selector.ok()) {
    abandon_mesh(mesh, selector.status());
    throw Error(selector.status());
  }
  auto impl = std::make_unique<Impl>(std::move(factory), std::move(mesh), options, *std::move(selector));
  return std::shared_ptr<Communicator>(new Communicator(std::move(impl)));
}

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::~Communicator() = default;

MeetingPoint Communicator::Impl::find(const InitOptions& options) {
  check_durations(options.group);
  const Secret secret = value_or_throw(Secret::from_environment());
  MeetingPoint where = value_or_throw(find_meeting_point(options, secret, Deadline::after(options.group.init_timeout)));
  set_log_rank(where.rank);
  record::Recorder::process().set_world(where.rank, where.world_size, 0);
  return where;
}

std::shared_ptr<Communicator> Communicator::Impl::at(const MeetingPoint& where, const CommunicatorOptions& options) {
  return at(where, options, value_or_throw(Secret::from_environment()));
}

std::shared_ptr<Communicator> Communicator::Impl::at(const MeetingPoint& where, const CommunicatorOptions& options,
                                                     const Secret& secret) {
  install_crash_reporter();
  check_membership(where.rank, where.world_size);
  const std::string interface = options.network_interface;
  auto factory = [where, secret, interface](const std::string& scope, int rank, int size, Deadline deadline) {
    return connect_mesh(MeetingPoint{where.store, rank, size, where.master_host}, secret,
                        MeshOptions{.scope = scope, .network_interface = interface, .abandon = abandon_mesh}, deadline);
  };
  return make(std::move(factory), options.name, where.rank, where.world_size, options);
}

std::shared_ptr<Communicator> Communicator::create(const InitOptions& options) {
  return Impl::at(Impl::find(options), options.group);
}

std::shared_ptr<Communicator> Communicator::create(std::shared_ptr<Store> store, int rank, int world_size,
                                                   const CommunicatorOptions& options) {
  return Impl::at(MeetingPoint{std::move(store), rank, world_size}, options);
}

std::vector<std::shared_ptr<Communicator>> Communicator::create_threads(int size, const CommunicatorOptions& options) {
  check_membership(0, size);
  auto hub = std::make_shared<ThreadsHub>();
  const MeshFactory factory = [hub](const std::string& scope, int rank, int n, Deadline deadline) {
    return hub->join(scope, rank, n, deadline);
  };
  std::vector<std::shared_ptr<Communicator>> groups(static_cast<std::size_t>(size));
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  // They begin together, or not at all: the others would wait for one that cannot be started.
  std::promise<bool> decision;
  const std::shared_future<bool> begin = decision.get_future().share();
  std::vector<std::thread> threads;
  Status started;
  for (int rank = 0; rank < size && started.ok(); ++rank) {
    auto thread = start_thread(fmt::format("creates rank {} of {}", rank, size), [&, begin, rank] {
      if (!begin.get()) return;
      const auto index = static_cast<std::size_t>(rank);
      try {
        groups[index] = Impl::make(factory, options.name, rank, size, options);
      } catch (...) {
        errors[index] = std::current_exception();
      }
    });
    started = thread.status();
    if (started.ok()) threads.push_back(*std::move(thread));
  }
  decision.set_value(started.ok());
  for (auto& thread : threads) thread.join();
  throw_if_error(started);
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return groups;
}

int Communicator::rank() const { return impl_->rank(); }
int Communicator::size() const { return impl_->size(); }
int Communicator::local_rank() const { return impl_->core->topology().local_rank(); }
int Communicator::local_size() const { return impl_->core->topology().local_size(); }
const std::string& Communicator::name() const { return impl_->core->options().name; }

std::string Communicator::describe() const {
  const auto& topology = impl_->core->topology();
  std::string text = fmt::format("group '{}': {} ranks on {} host{}, this is rank {}\n", name(), topology.size(),
                                 topology.hosts.size(), topology.hosts.size() == 1 ? "" : "s", topology.rank);
  for (const auto& ranks : topology.hosts) {
    text += fmt::format("  {}: ranks {}\n", topology.member(ranks.front()).host, fmt::join(ranks, ", "));
  }
  return text;
}

std::string Communicator::describe_rank(int rank) const { return impl_->core->describe_rank(rank); }

std::string Communicator::algorithm_table() const { return impl_->core->selector().table(); }

std::shared_ptr<Communicator> Communicator::new_group(std::span<const int> ranks, const std::string& name) {
  const std::vector<int> list(ranks.begin(), ranks.end());
  const auto invalid = [&](const std::string& why) {
    return Error(Status(StatusCode::invalid_argument, fmt::format("new_group({}): {}", fmt::join(list, ", "), why)));
  };
  if (std::set<int>(list.begin(), list.end()).size() != list.size()) throw invalid("a rank is listed twice");
  for (const int rank : list) {
    if (rank < 0 || rank >= size()) throw invalid(fmt::format("{} is not a rank of {} ranks", rank, size()));
  }
  const auto me = std::find(list.begin(), list.end(), rank());
  if (me == list.end()) throw invalid(fmt::format("rank {} is not in the list; only members may call it", rank()));
  throw_if_error(health());

  int use = 0;
  {
    const std::lock_guard lock(impl_->mutex);
    use = impl_->subgroups[list]++;
  }
  CommunicatorOptions options = impl_->core->options();
  options.name = name.empty() ? fmt::format("{}[{}]", this->name(), fmt::join(list, ",")) : name;
  // The parent's id is unique; the list and how often it was used distinguish its subgroups. As
  // a hash, so that groups of many ranks, and subgroups of subgroups, keep short names.
  const std::string origin = fmt::format("{}/{}", impl_->core->group_id(), fmt::join(list, "-"));
  const XXH128_hash_t hash = XXH3_128bits(origin.data(), origin.size());
  const std::string scope = fmt::format("sub/{:016x}{:016x}/{}", hash.high64, hash.low64, use);
  return Impl::make(impl_->factory, scope, static_cast<int>(me - list.begin()), static_cast<int>(list.size()), options);
}

std::shared_ptr<Communicator> Communicator::split(int color, int key, const std::string& name) {
  const std::int32_t mine[2] = {color, key};
  std::vector<std::int32_t> all(2 * static_cast<std::size_t>(size()));
  all_gather(ConstBuffer(std::span(mine)), Buffer(std::span(all)));
  if (color < 0) return nullptr;
  const auto color_of = [&](int rank) { return all[2 * static_cast<std::size_t>(rank)]; };
  const auto key_of = [&](int rank) { return all[2 * static_cast<std::size_t>(rank) + 1]; };
  std::vector<int> members;
  for (int rank = 0; rank < size(); ++rank) {
    if (color_of(rank) == color) members.push_back(rank);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return key_of(a) < key_of(b); });
  return new_group(members, name);
}

std::shared_ptr<RegisteredMemory> Communicator::allocate(std::size_t bytes) {
  std::shared_ptr<SharedMemory> memory = value_or_throw(SharedMemory::create(bytes, "lockstep-registered"));
  auto registration = std::make_shared<detail::Registration>(std::move(memory), bytes, impl_->core);
  return std::make_shared<RegisteredMemory>(std::move(registration));
}

void Communicator::abort(const std::string& reason) {
  impl_->core->fail(
      Status(StatusCode::aborted, fmt::format("{} aborted the group: {}", impl_->core->describe_rank(rank()), reason)));
}

void Communicator::abort(const Status& reason) { impl_->core->fail(reason); }

Status Communicator::health() const {
  const Status reason = impl_->core->failure().reason();
  return reason.with_context(impl_->core->describe_group() + " is dead");
}

int Communicator::failure_fd() const { return impl_->core->failure().stop_fd(); }

Work Communicator::submit(const Operation& operation) {
  if (!is_collective(operation.kind)) return impl_->submit_message(operation);
  return impl_->collectives.submit(impl_->request(operation));
}

void Communicator::all_reduce(ConstBuffer input, Buffer output, const ReduceOptions& options) {
  impl_->run(Operation::all_reduce(input, output, options));
}
Work Communicator::all_reduce_async(ConstBuffer input, Buffer output, const ReduceOptions& options) {
  return submit(Operation::all_reduce(input, output, options));
}

void Communicator::all_reduce(Buffer data, const ReduceOptions& options) {
  impl_->run(Operation::all_reduce(data, options));
}
Work Communicator::all_reduce_async(Buffer data, const ReduceOptions& options) {
  return submit(Operation::all_reduce(data, options));
}

void Communicator::reduce(ConstBuffer input, Buffer output, int root, const ReduceOptions& options) {
  impl_->run(Operation::reduce(input, output, root, options));
}
Work Communicator::reduce_async(ConstBuffer input, Buffer output, int root, const ReduceOptions& options) {
  return submit(Operation::reduce(input, output, root, options));
}

void Communicator::broadcast(Buffer data, int root, const CallOptions& options) {
  impl_->run(Operation::broadcast(data, root, options));
}
Work Communicator::broadcast_async(Buffer data, int root, const CallOptions& options) {
  return submit(Operation::broadcast(data, root, options));
}

void Communicator::all_gather(ConstBuffer input, Buffer output, const CallOptions& options) {
  impl_->run(Operation::all_gather(input, output, options));
}
Work Communicator::all_gather_async(ConstBuffer input, Buffer output, const CallOptions& options) {
  return submit(Operation::all_gather(input, output, options));
}

void Communicator::all_gather_v(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                                const CallOptions& options) {
  impl_->run(Operation::all_gather_v(input, output, counts, options));
}
Work Communicator::all_gather_v_async(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                                      const CallOptions& options) {
  return submit(Operation::all_gather_v(input, output, counts, options));
}

void Communicator::reduce_scatter(ConstBuffer input, Buffer output, const ReduceOptions& options) {
  impl_->run(Operation::reduce_scatter(input, output, options));
}
Work Communicator::reduce_scatter_async(ConstBuffer input, Buffer output, const ReduceOptions& options) {
  return submit(Operation::reduce_scatter(input, output, options));
}

void Communicator::gather(ConstBuffer input, Buffer output, int root, const CallOptions& options) {
  impl_->run(Operation::gather(input, output, root, options));
}
Work Communicator::gather_async(ConstBuffer input, Buffer output, int root, const CallOptions& options) {
  return submit(Operation::gather(input, output, root, options));
}

void Communicator::scatter(ConstBuffer input, Buffer output, int root, const CallOptions& options) {
  impl_->run(Operation::scatter(input, output, root, options));
}
Work Communicator::scatter_async(ConstBuffer input, Buffer output, int root, const CallOptions& options) {
  return submit(Operation::scatter(input, output, root, options));
}

void Communicator::all_to_all(ConstBuffer input, Buffer output, const CallOptions& options) {
  impl_->run(Operation::all_to_all(input, output, options));
}
Work Communicator::all_to_all_async(ConstBuffer input, Buffer output, const CallOptions& options) {
  return submit(Operation::all_to_all(input, output, options));
}

void Communicator::barrier(const CallOptions& options) { impl_->run(Operation::barrier(options)); }
Work Communicator::barrier_async(const CallOptions& options) { return submit(Operation::barrier(options)); }

void Communicator::send(ConstBuffer data, int destination, int tag, const CallOptions& options) {
  impl_->run(Operation::send(data, destination, tag, options));
}
Work Communicator::send_async(ConstBuffer data, int destination, int tag, const CallOptions& options) {
  return submit(Operation::send(data, destination, tag, options));
}

void Communicator::recv(Buffer data, int source, int tag, const CallOptions& options) {
  impl_->run(Operation::recv(data, source, tag, options));
}
Work Communicator::recv_async(Buffer data, int source, int tag, const CallOptions& options) {
  return submit(Operation::recv(data, source, tag, options));
}
int Communicator::recv_any(Buffer data, int tag, const CallOptions& options) {
  int source = kAnyRank;
  impl_->run(Operation::recv_any(data, &source, tag, options));
  return source;
}
Work Communicator::recv_any_async(Buffer data, int* source, int tag, const CallOptions& options) {
  return submit(Operation::recv_any(data, source, tag, options));
}

}  // namespace lockstep
