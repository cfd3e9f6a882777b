#include "ddp/backends/c10d/c10d_lane.h"

#if LOCKSTEP_HAS_C10D

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "base/start_thread.h"
#include "communicator/communicator_impl.h"

namespace lockstep::detail {

namespace {

using std::chrono::milliseconds;

// When an engine fails by itself: how long the watch group has to name the lost rank, before the engine's own
// message is used. A lost peer's connections end at the same time.
constexpr milliseconds kLostRankWait{1000};

// What is left to do on the device after an operation, on this thread's stream. Its memory may be of another stream's
// pool.
void finish_on_current_stream(const std::function<void()>& finish, const std::vector<at::Tensor>& tensors) {
  if (!finish) return;
  finish();
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const c10::impl::VirtualGuardImpl guard(tensor.device().type());
    guard.recordDataPtrOnStream(tensor.storage().data_ptr(), guard.getStream(tensor.device()));
  }
}

// Streams: how often to poll whether the device has finished, and how long it has after the end of the group.
constexpr milliseconds kDeviceLook{20};
constexpr milliseconds kDeviceGrace{10000};

// After close(): how long the engine may take to release the tensors, before operations complete without it.
constexpr std::chrono::milliseconds kCloseGrace{2000};
// How often a rank that does not wait looks what the others wait for.
constexpr std::chrono::milliseconds kIdleLook{1000};

bool readable_within(int fd, milliseconds timeout) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, static_cast<int>(timeout.count())) > 0;
}

}  // namespace

C10dLane::C10dLane(WatchGroup watch, const C10dEngine& engine, C10dBackend& backend)
    : watch_(std::move(watch)),
      outer_(Communicator::Impl::watch_outer(*watch_.group)),
      engine_(engine),
      backend_(backend),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_fd_.valid()) throw Error({StatusCode::resource_exhausted, "no eventfd for a group: too many open files"});
  completer_ = value_or_throw(start_thread("completes collectives", [this] { complete_collectives(); }));
  auto watcher = start_thread("watches a group", [this] { this->watch(); });
  if (watcher.ok()) {
    watcher_ = *std::move(watcher);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  completer_.join();
  throw Error(watcher.status());
}

C10dLane::~C10dLane() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return pending_.empty(); });
    closing_ = true;
  }
  changed_.notify_all();
  wake_watcher();
  completer_.join();
  for (std::thread& messenger : messengers_) messenger.join();
  watcher_.join();
}

Work C10dLane::issue(C10dOperation operation, const std::function<C10dWork()>& start) {
  auto pending = std::make_shared<C10dOperation>(std::move(operation));
  pending->state = std::make_shared<WorkState>();
  std::lock_guard issue_lock(issue_mutex_);
  throw_if_error(health());
  if (pending->collective) {
    std::lock_guard lock(mutex_);
    pending->collective->sequence = ++last_issued_;
    pending->name = describe(*pending->collective);
  }
  if (!pending->collective) add_messenger();
  pending->issued = Clock::now();
  try {
    pending->work = start();
  } catch (const std::exception& error) {
    throw Error(failure_of(*pending, error.what()));
  }
  if (engine_.traits.stream_ordered) complete_at_once(*pending);
  std::lock_guard lock(mutex_);
  pending_.push_back(pending);
  if (!pending->collective) {
    messages_.push_back(pending);
  } else {
    collectives_.push_back(pending);
  }
  changed_.notify_all();
  if (!failure_.ok() || next_look_ > pending->issued + OuterOperations::kLook ||
      next_look_ > pending->deadline().when()) {
    wake_watcher();
  }
  return Work(pending->state);
}

// A thread for one more message, unless one is idle.
void C10dLane::add_messenger() {
  std::unique_lock lock(mutex_);
  if (idle_messengers_ > static_cast<int>(messages_.size())) return;
  auto messenger = start_thread("completes messages", [this] { complete_messages(); });
  if (messenger.ok()) return messengers_.push_back(*std::move(messenger));
  lock.unlock();
  fail(messenger.status());  // the peer waits for the other end of this message
  throw Error(messenger.status());
}

void C10dLane::fail(const Status& reason) {
  const Status earlier = watch_failure();
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = earlier.ok() ? reason : earlier;
  }
  // First the reason, then the end of the connections: else the peers would only see that these have ended.
  watch_.group->abort(reason);
  wake_watcher();
}

Status C10dLane::health() const {
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_.with_context(fmt::format("group '{}' is dead", watch_.group->name()));
  }
  return watch_.group->health();
}

Status C10dLane::watch_failure() const {
  const Status status = watch_.group->health();
  const std::string prefix = fmt::format("group '{}' is dead: ", watch_.group->name());
  if (!status.message().starts_with(prefix)) return status;
  return {status.code(), status.message().substr(prefix.size())};
}

void C10dLane::complete_collectives() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !collectives_.empty(); });
    if (collectives_.empty()) return;
    const Pending operation = std::move(collectives_.front());
    collectives_.pop_front();
    lock.unlock();
    run(operation);
    lock.lock();
  }
}

void C10dLane::complete_messages() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_messengers_;
    changed_.wait(lock, [this] { return closing_ || !messages_.empty(); });
    --idle_messengers_;
    if (messages_.empty()) return;
    const Pending operation = std::move(messages_.front());
    messages_.pop_front();
    lock.unlock();
    run(operation);
    lock.lock();
  }
}

void C10dLane::run(const Pending& operation) {
  Status outcome;
  try {
    if (engine_.traits.stream_ordered) {
      await_device(*operation);
    } else {
      operation->work->wait();
      if (operation->finish) operation->finish();
    }
  } catch (const std::exception& error) {
    outcome = failure_of(*operation, error.what());
  }
  if (outcome.ok() && operation->collective) outer_->completed(*operation->collective);
  settle(operation, outcome);
  operation->tensors.clear();
  operation->finish = nullptr;
  {
    std::lock_guard lock(mutex_);
    pending_.remove(operation);
  }
  changed_.notify_all();
}

// The engine keeps the tensors alive from here on; only what is left to do after the operation keeps its own.
void C10dLane::complete_at_once(C10dOperation& operation) const {
  const std::weak_ptr<Communicator> group = watch_.group;  // a Work that is kept must not keep the group
  operation.state->set_arrival([group, work = operation.work, name = operation.name, finish = operation.finish,
                                tensors = operation.tensors, once = std::make_shared<std::once_flag>()]() -> Status {
    if (const auto watching = group.lock(); watching && !watching->health().ok()) {
      return watching->health().with_context(name);
    }
    try {
      work->wait();
      std::call_once(*once, [&] { finish_on_current_stream(finish, tensors); });
    } catch (const std::exception& error) {
      return Status(StatusCode::internal, error.what()).with_context(name);
    }
    return {};
  });
  operation.tensors.clear();
  operation.finish = nullptr;
  operation.settled = true;
  operation.state->complete(Status());
}

// Throws the engine's error for an operation that failed on the device. After the end of the group it does not wait
// for a device that hangs.
void C10dLane::await_device(const C10dOperation& operation) {
  std::optional<Clock::time_point> ended;
  while (!operation.work->isCompleted()) {
    std::unique_lock lock(mutex_);
    if (!failure_.ok() && !ended) ended = Clock::now();
    if (ended && Clock::now() - *ended > kDeviceGrace) return;
    changed_.wait_for(lock, kDeviceLook);
  }
  if (const std::exception_ptr error = operation.work->exception()) std::rethrow_exception(error);
}

void C10dLane::settle(const Pending& operation, const Status& outcome) {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(operation->settled, true)) return;
  }
  operation->state->complete(outcome);
}

Status C10dLane::failure_of(const C10dOperation& operation, const std::string& c10d_error) {
  const auto known = [this] {
    std::lock_guard lock(mutex_);
    return failure_;
  };
  if (known().ok()) {
    readable_within(watch_.group->failure_fd(), kLostRankWait);
    Status reason = watch_failure();
    if (reason.ok()) {
      reason =
          Status(StatusCode::peer_lost, fmt::format("backend \"{}\" failed on rank {}: {}", engine_.name,
                                                    watch_.group->rank(), c10d_error.substr(0, c10d_error.find('\n'))));
    }
    fail(reason);
  }
  return error_of(operation, known());
}

Status C10dLane::error_of(const C10dOperation& operation, const Status& reason) const {
  return {reason.code(), fmt::format("{} of group '{}' (backend \"{}\") failed on rank {} after {:.3f} s: {}",
                                     operation.name, watch_.group->name(), engine_.name, watch_.group->rank(),
                                     operation.elapsed_seconds(), reason.message())};
}

// The watcher: one thread that ends operations at their deadlines and when the group fails.

void C10dLane::wake_watcher() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_fd_.get(), &one, sizeof one);  // full: awake anyway
}

void C10dLane::watch() {
  bool ended = false;
  for (;;) {
    // Once the group is dead, its fd reports nothing new.
    pollfd entries[] = {{.fd = wake_fd_.get(), .events = POLLIN, .revents = 0},
                        {.fd = ended ? -1 : watch_.group->failure_fd(), .events = POLLIN, .revents = 0}};
    ::poll(entries, 2, ended ? -1 : next_look().poll_timeout_ms());
    std::uint64_t count = 0;
    [[maybe_unused]] const auto taken = ::read(wake_fd_.get(), &count, sizeof count);
    {
      std::lock_guard lock(mutex_);
      if (closing_) return;
    }
    if (const Status lost = watch_failure(); !lost.ok()) fail(lost);
    if (health().ok()) {
      look_at_collectives();
      look_at_messages();
      continue;
    }
    if (!std::exchange(ended, true)) end_pending();
    settle_pending();
  }
}

Deadline C10dLane::next_look() {
  std::lock_guard lock(mutex_);
  next_look_ = Clock::now() + kIdleLook;
  for (const Pending& operation : pending_) {
    const auto due = operation->collective ? Clock::now() + OuterOperations::kLook : operation->deadline().when();
    next_look_ = std::min(next_look_, due);
  }
  return Deadline::at(next_look_);
}

void C10dLane::end_pending() {
  if (!engine_.traits.close) return;
  try {
    engine_.traits.close(backend_);
  } catch (const std::exception& error) {
    log_warn("backend \"{}\" did not close its connections: {}", engine_.name, error.what());
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kCloseGrace, [this] { return pending_.empty(); });
}

void C10dLane::settle_pending() {
  std::vector<Pending> left;
  Status reason;
  {
    std::lock_guard lock(mutex_);
    left.assign(pending_.begin(), pending_.end());
    reason = failure_;
  }
  for (const Pending& operation : left) settle(operation, error_of(*operation, reason));
}

void C10dLane::look_at_collectives() {
  std::optional<OuterOperations::Pending> oldest;
  {
    std::lock_guard lock(mutex_);
    for (const Pending& operation : pending_) {
      if (!operation->collective) continue;
      if (!oldest) oldest = {*operation->collective, operation->issued, operation->deadline()};
      // One that waits for its turn has its own deadline; the one in front of it causes the delay.
      oldest->deadline = oldest->deadline.earlier(operation->deadline());
    }
  }
  const Status verdict = outer_->look(oldest);
  if (verdict.ok()) return;
  // It may have ended meanwhile: then it was only late.
  if (verdict.code() == StatusCode::timed_out && !is_pending(oldest->op.sequence)) return;
  fail(verdict);
}

bool C10dLane::is_pending(std::uint64_t collective) const {
  std::lock_guard lock(mutex_);
  return std::any_of(pending_.begin(), pending_.end(), [&](const Pending& operation) {
    return operation->collective && operation->collective->sequence == collective;
  });
}

void C10dLane::look_at_messages() {
  Pending late;
  {
    std::lock_guard lock(mutex_);
    for (const Pending& operation : pending_) {
      if (!operation->collective && operation->deadline().expired()) late = operation;
    }
  }
  if (!late) return;
  fail({StatusCode::timed_out,
        fmt::format("{} on rank {} reached its deadline after {:.1f} s: the peer did not reach this operation; is it "
                    "stuck, slower than the timeout, or on a different code path?",
                    late->name, watch_.group->rank(), late->elapsed_seconds())});
}

}  // namespace lockstep::detail

#endif
