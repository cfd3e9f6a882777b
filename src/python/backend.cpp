#include "python/backend.h"

#include "base/random.h"
#include "communicator/communicator_impl.h"
#include "lockstep/base/secret.h"
#include "lockstep/store/stores.h"
#include "python/gil.h"
#include "python/sequences.h"
#include "python/store_over_c10d.h"
#include "python/tensors.h"

namespace lockstep::python {
namespace {

// The environment's secret, or one that all ranks find in the store: the first to write it chooses.
Secret agree_on_secret(Store& store, Deadline deadline) {
  Secret secret = value_or_throw(Secret::from_environment());
  if (!secret.empty()) return secret;
  return Secret(value_or_throw(store.compare_set("lockstep/secret", std::nullopt, random_hex(32), deadline)));
}

std::shared_ptr<Communicator> connect(const GroupArguments& arguments) {
  const CommunicatorOptions options{
      .name = arguments.name, .init_timeout = arguments.timeout, .timeout = arguments.timeout};
  const MeetingPoint alone{.store = make_memory_store(), .rank = arguments.rank, .world_size = arguments.size};
  if (arguments.size == 1) return Communicator::Impl::at(alone, options);
  const auto store = std::make_shared<StoreOverC10d>(arguments.store);
  const Secret secret = agree_on_secret(*store, Deadline::after(arguments.timeout));
  const MeetingPoint where{
      .store = store, .rank = arguments.rank, .world_size = arguments.size, .master_host = store->host()};
  return Communicator::Impl::at(where, options, secret);
}

}  // namespace

c10::intrusive_ptr<TorchBackend> TorchBackend::create(const GroupArguments& arguments) {
  try {
    return c10::make_intrusive<TorchBackend>(connect(arguments), arguments.timeout);
  } catch (const Error& error) {
    throw_status(error.status());
  }
}

TorchBackend::TorchBackend(std::shared_ptr<Communicator> group, std::chrono::milliseconds timeout)
    : C10dBackend(group->rank(), group->size()),
      group_(std::move(group)),
      completions_(std::make_shared<CompletionQueue>()),
      queue_(std::make_unique<OperationQueue>(group_)),
      timeout_(timeout) {}

TorchBackend::~TorchBackend() {
  const ReleaseGil released;
  queue_.reset();
  group_.reset();
}

Task TorchBackend::begin(::c10d::OpType type, const std::string& name, const Tensors& inputs,
                         TensorLists outputs) const {
  return {.work = c10::make_intrusive<TorchWork>(getRank(), type, name, inputs, std::move(outputs), completions_)};
}

TorchBackend::WorkPointer TorchBackend::issue(Task task) {
  WorkPointer work = task.work;
  try {
    queue_->issue(std::move(task));
  } catch (const Error& error) {
    throw_status(error.status());
  }
  issued_.fetch_add(1);
  return work;
}

TorchBackend::WorkPointer TorchBackend::issue_message(Task task) {
  WorkPointer work = task.work;
  try {
    queue_->issue_message(std::move(task));
  } catch (const Error& error) {
    throw_status(error.status());
  }
  return work;
}

std::chrono::milliseconds TorchBackend::timeout_of(std::chrono::milliseconds requested) const {
  return requested.count() >= 0 ? requested : timeout_.load();
}

void TorchBackend::monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) {
  const ReleaseGil released;
  try {
    monitored_barrier(*group_, timeout_of(options.timeout), wait_all_ranks);
  } catch (const Error& error) {
    throw_status(error.status());
  }
}

}  // namespace lockstep::python
