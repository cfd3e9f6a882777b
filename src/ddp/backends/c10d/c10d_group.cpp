#include "ddp/backends/c10d/c10d_group.h"

#if LOCKSTEP_HAS_C10D

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <poll.h>

#include <cstdlib>
#include <future>
#include <thread>

#include "base/start_thread.h"
#include "communicator/communicator_impl.h"
#include "ddp/backends/c10d/c10d_store.h"
#include "ddp/backends/tensor_check.h"
#include "rendezvous/network_interface.h"
#include "store/prefix_store.h"

namespace lockstep::detail {

namespace {

constexpr std::chrono::milliseconds kLookInterval{20};
// Engines add timeouts to the time.
constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(24 * 365);

// The address at which other hosts reach this one; as for the links of our own engine.
std::string address_for_other_hosts(const WatchGroup& watch) {
  const std::string wanted = wanted_interface();
  SocketAddress address = value_or_throw(choose_local_address(wanted, watch.master_host));
  // On the master host its own name often resolves to loopback, which other hosts cannot reach.
  if (wanted.empty() && address.is_loopback()) address = value_or_throw(choose_local_address("", ""));
  return address.host();
}

}  // namespace

C10dGroup::C10dGroup(WatchGroup watch, std::shared_ptr<const C10dEngine> engine, const C10dTimeouts& timeouts)
    : watch_(std::move(watch)),
      engine_(std::move(engine)),
      timeouts_(timeouts),
      device_(engine_->traits.stream_ordered ? c10::impl::VirtualGuardImpl(engine_->traits.device).getDevice()
                                             : at::Device(engine_->traits.device)) {
  // Keys of another group, or of an earlier run, are never this group's.
  const std::string& id = Communicator::Impl::group_id(*watch_.group);
  store_ = std::make_shared<PrefixStore>(watch_.store, fmt::format("c10d/{}/", id));
  try {
    connect();
    lane_ = std::make_unique<C10dLane>(watch_, *engine_, *backend_);
  } catch (const Error& error) {
    watch_.group->abort(error.status());  // the others wait for this rank
    throw;
  }
  collectives_ =
      std::make_unique<C10dCollectives>(*engine_, *backend_, *lane_, device_, rank(), size(), timeouts_.operation);
}

C10dGroup::~C10dGroup() = default;

Work C10dGroup::submit(const TensorOperation& operation) { return collectives_->submit(operation); }

C10dBackendArguments C10dGroup::arguments() const {
  C10dBackendArguments arguments;
  auto store = c10::make_intrusive<C10dStore>(std::make_shared<PrefixStore>(store_, "engine/"),
                                              [group = watch_.group] { return group->health(); });
  store->setTimeout(std::min(timeouts_.init, kLongestTimeout));
  arguments.store = std::move(store);
  arguments.rank = rank();
  arguments.size = size();
  arguments.one_host = local_size() == size();
  arguments.address = arguments.one_host ? "127.0.0.1" : address_for_other_hosts(watch_);
  arguments.timeout = 2 * std::min(std::max(timeouts_.operation, timeouts_.init), kLongestTimeout);
  arguments.group_name = watch_.group->name();
  return arguments;
}

// An engine that connects cannot be interrupted. So it connects on a thread of its own, which is left behind, to
// end by the engine's own timeout, when a peer is lost meanwhile.
void C10dGroup::connect() {
  using Backend = c10::intrusive_ptr<C10dBackend>;
  const std::string context = fmt::format("connecting backend \"{}\" of group '{}'", backend(), watch_.group->name());
  const Deadline deadline = Deadline::after(timeouts_.init);
  std::promise<Backend> made;
  std::future<Backend> result = made.get_future();
  std::thread thread = value_or_throw(
      start_thread("connects an engine", [made = std::move(made), engine = engine_, arguments = arguments()]() mutable {
        try {
          made.set_value(engine->make(arguments));
        } catch (...) {
          made.set_exception(std::current_exception());
        }
      }));
  while (result.wait_for(kLookInterval) != std::future_status::ready) {
    Status status = watch_.group->health();
    if (status.ok() && deadline.expired()) {
      status = {StatusCode::timed_out, fmt::format("not all ranks joined within {} ms", timeouts_.init.count())};
    }
    if (status.ok()) continue;
    thread.detach();
    watch_.group->abort(status);
    throw Error(status.with_context(context));
  }
  thread.join();
  try {
    backend_ = result.get();
  } catch (const Error& error) {
    throw Error(error.status().with_context(context));
  } catch (const std::exception& error) {
    const Status status(StatusCode::unavailable, fmt::format("{}: {}", context, error.what()));
    watch_.group->abort(status);
    throw Error(status);
  }
}

std::string C10dGroup::describe() const {
  return watch_.group->describe() +
         fmt::format("  tensors are moved by backend \"{}\" of LibTorch {}\n", backend(), TORCH_VERSION);
}

Status C10dGroup::check(const at::Tensor& tensor, std::optional<ReduceOp> op) const {
  if (op && !engine_->traits.bitwise &&
      (*op == ReduceOp::bit_and || *op == ReduceOp::bit_or || *op == ReduceOp::bit_xor)) {
    return {StatusCode::invalid_argument,
            fmt::format("backend \"{}\" has no {}; reduce the tensor on the CPU", backend(), lockstep::to_string(*op))};
  }
  return check_tensor(backend(), engine_->traits.device, tensor, op);
}

at::Tensor C10dGroup::empty(std::int64_t count, at::ScalarType dtype, at::Device device) {
  return at::empty({count}, at::TensorOptions().dtype(dtype).device(device));
}

ProcessGroup::Memory C10dGroup::allocate(std::size_t bytes) {
  constexpr std::size_t kAlignment = 4096;
  const std::size_t whole = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  std::shared_ptr<void> memory(std::aligned_alloc(kAlignment, whole), std::free);
  if (!memory) throw Error({StatusCode::resource_exhausted, fmt::format("no memory for {} bytes", bytes)});
  return {static_cast<std::byte*>(memory.get()), memory};
}

std::shared_ptr<ProcessGroup> C10dGroup::make_subgroup(std::span<const int> ranks, const std::string& name) {
  throw_if_error(health());
  WatchGroup watch{watch_.group->new_group(ranks, name), watch_.store, watch_.master_host};
  return std::make_shared<C10dGroup>(std::move(watch), engine_, timeouts_);
}

void C10dGroup::abort(const std::string& reason) {
  lane_->fail(
      {StatusCode::aborted, fmt::format("{} aborted the group: {}", watch_.group->describe_rank(rank()), reason)});
}

}  // namespace lockstep::detail

#endif
