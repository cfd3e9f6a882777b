// The lane's watcher: one thread that knows when an operation must end.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "ddp/backends/c10d/c10d_lane.h"

#if LOCKSTEP_HAS_C10D

namespace lockstep::detail {

namespace {

// After close(): how long the engine may take to let go of the tensors, before operations complete without it.
constexpr std::chrono::milliseconds kCloseGrace{2000};
// How often a rank that does not wait tells the others how far it has come.
constexpr std::chrono::milliseconds kPublishInterval{1000};
constexpr std::chrono::milliseconds kStoreTimeout{2000};

}  // namespace

void C10dLane::wake_watcher() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_fd_.get(), &one, sizeof one);  // full: awake anyway
}

void C10dLane::watch() {
  bool ended = false;
  for (;;) {
    // Once the group is dead, its fd says nothing new.
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
      publish_progress();
      look_at_deadlines();
      continue;
    }
    if (!std::exchange(ended, true)) end_pending();
    settle_pending();
  }
}

Deadline C10dLane::next_look() {
  std::lock_guard lock(mutex_);
  next_look_ = Clock::time_point::max();
  for (const Pending& operation : pending_) next_look_ = std::min(next_look_, operation->deadline().when());
  if (last_issued_ > published_) next_look_ = std::min(next_look_, Clock::now() + kLongWait);
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

void C10dLane::look_at_deadlines() {
  Pending late;
  {
    std::lock_guard lock(mutex_);
    for (const Pending& operation : pending_) {
      if (operation->deadline().expired()) {
        late = operation;
        break;
      }
    }
  }
  if (late) fail(deadline_error(*late));
}

void C10dLane::publish_progress() {
  std::uint64_t issued = 0;
  bool waits = false;
  {
    std::lock_guard lock(mutex_);
    issued = last_issued_;
    waits = std::any_of(pending_.begin(), pending_.end(),
                        [](const Pending& operation) { return Clock::now() - operation->issued >= kLongWait; });
  }
  if (issued == published_ || (!waits && Clock::now() - published_at_ < kPublishInterval)) return;
  const Status status = store_->set(fmt::format("progress/{}", watch_.group->rank()), std::to_string(issued),
                                    Deadline::after(kStoreTimeout));
  if (!status.ok()) log_debug("no word of progress for the others: {}", status.to_string());
  published_ = issued;  // also after an error: it only serves messages
  published_at_ = Clock::now();
}

Status C10dLane::deadline_error(const C10dOperation& operation) const {
  const std::string who = operation.message ? "the other side did not come" : who_is_missing(operation.sequence);
  return {StatusCode::timed_out,
          fmt::format("{} on rank {} reached its deadline after {:.1f} s: {}; is it stuck, slower than the timeout, or "
                      "did it take another path through the program?",
                      operation.name, watch_.group->rank(), operation.elapsed_seconds(), who)};
}

std::string C10dLane::who_is_missing(std::uint64_t sequence) const {
  const auto told = store_->list("progress/", Deadline::after(kStoreTimeout));
  if (!told.ok()) return fmt::format("it is not known who did not come ({})", told.status().message());
  std::vector<std::string> missing;
  for (int rank = 0; rank < watch_.group->size(); ++rank) {
    if (rank == watch_.group->rank()) continue;
    const auto found = told->find(fmt::format("progress/{}", rank));
    std::uint64_t reached = 0;
    if (found != told->end()) {
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), reached);
    }
    if (reached < sequence) missing.push_back(watch_.group->describe_rank(rank));
  }
  if (missing.empty()) return fmt::format("all ranks came to it, but backend \"{}\" did not finish it", engine_.name);
  return fmt::format("{} did not come to this operation", fmt::join(missing, ", "));
}

}  // namespace lockstep::detail

#endif
