#include "mpi/channel.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::mpi {
namespace {

// How often a rank that does not wait looks what the others wait for.
constexpr std::chrono::milliseconds kIdleLook{1000};

}  // namespace

Work Channel::submit(ChannelOperation operation) {
  auto work = std::make_shared<detail::WorkState>();
  operation.work = work;
  operation.issued = Deadline::Clock::now();
  operation.deadline = Deadline::after(operation.timeout);
  Status failure;
  {
    const std::lock_guard lock(mutex_);
    failure = failure_;
    if (failure.ok()) {
      if (operation.collective) operation.collective->sequence = ++last_issued_;
      ++pending_;
      submitted_.push_back(std::move(operation));
    }
  }
  if (!failure.ok()) {
    work->complete(failure);
  } else {
    settings_.wake();
  }
  return Work(work);
}

void Channel::fail(const Status& reason, bool notify_peers) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = reason;
  }
  if (notify_peers && settings_.notify_peers) settings_.notify_peers(reason);
  settings_.wake();
}

Status Channel::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Channel::drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return pending_ == 0; });
}

bool Channel::advance() {
  bool worked = take_submitted();
  if (const Status reason = failure(); !reason.ok()) {
    end_all(reason);
    return worked;
  }
  worked |= start_next();
  worked |= test_running();
  return worked;
}

bool Channel::take_submitted() {
  std::vector<ChannelOperation> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(submitted_);
  }
  for (ChannelOperation& operation : taken) {
    if (operation.collective) {
      next_look_ = std::min(next_look_, Deadline::Clock::now() + OuterOperations::kLook);
      waiting_.push_back(std::move(operation));
    } else if (failure().ok()) {
      start(std::move(operation));
    } else {
      end(std::move(operation), failure());
    }
  }
  return !taken.empty();
}

bool Channel::start_next() {
  if (collective_runs_ || waiting_.empty()) return false;
  ChannelOperation operation = std::move(waiting_.front());
  waiting_.pop_front();
  collective_runs_ = start(std::move(operation));
  return true;
}

// True if it runs.
bool Channel::start(ChannelOperation operation) {
  if (const int code = operation.start(&operation.request); code != 0) {
    const Status error = mpi_error(operation, code);
    fail(error, true);
    end(std::move(operation), error);
    return false;
  }
  running_.push_back(std::move(operation));
  return true;
}

bool Channel::test_running() {
  bool ended = false;
  for (std::size_t i = 0; i < running_.size();) {
    int done = 0;
    std::size_t received = 0;
    int code = settings_.mpi->test(running_[i].request, &done, &received);
    if (done == 0) {
      ++i;
      continue;
    }
    ended = true;
    if (code == 0 && running_[i].then) {
      code = std::exchange(running_[i].then, nullptr)(&running_[i].request);
      if (code == 0) {
        ++i;
        continue;
      }
    }
    ChannelOperation operation = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    if (operation.collective) collective_runs_ = false;
    Status outcome;
    if (code != 0) {
      outcome = mpi_error(operation, code);
    } else if (operation.finish) {
      outcome = operation.finish(received).with_context(describe(operation));
    }
    if (!outcome.ok()) fail(outcome, true);
    end(std::move(operation), outcome);
  }
  return ended;
}

void Channel::check() {
  if (!failure().ok()) return;
  if (settings_.health && busy()) {
    if (const Status health = settings_.health(); !health.ok()) return fail(health, false);
  }
  check_messages();
  check_collectives();
}

void Channel::check_messages() {
  for (const ChannelOperation& operation : running_) {
    if (operation.collective || !operation.deadline.expired()) continue;
    const std::string text = fmt::format("{}: not complete within {}", describe(operation), operation.timeout);
    return fail(Status(StatusCode::timed_out, text), true);
  }
}

std::optional<OuterOperations::Pending> Channel::oldest_collective() const {
  std::optional<OuterOperations::Pending> oldest;
  const auto add = [&](const ChannelOperation& operation) {
    if (!operation.collective) return;
    if (!oldest) oldest = {*operation.collective, operation.issued, operation.deadline};
    // One that waits for its turn has its own deadline; the one in front of it causes the delay.
    oldest->deadline = oldest->deadline.earlier(operation.deadline);
  };
  for (const ChannelOperation& operation : running_) add(operation);
  for (const ChannelOperation& operation : waiting_) add(operation);
  return oldest;
}

void Channel::check_collectives() {
  const auto now = Deadline::Clock::now();
  if (!settings_.look || now < next_look_) return;
  const auto oldest = oldest_collective();
  next_look_ = now + (oldest ? OuterOperations::kLook : kIdleLook);
  if (const Status verdict = settings_.look(oldest); !verdict.ok()) fail(verdict.with_context(settings_.name), true);
}

void Channel::end(ChannelOperation operation, const Status& outcome) {
  operation.start = nullptr;
  operation.then = nullptr;
  operation.finish = nullptr;
  std::shared_ptr<detail::WorkState> work = std::move(operation.work);
  operation.memory.reset();
  if (operation.collective && outcome.ok() && settings_.completed) settings_.completed(*operation.collective);
  work->complete(outcome);
  const std::lock_guard lock(mutex_);
  if (--pending_ == 0) idle_.notify_all();
}

void Channel::end_all(const Status& reason) {
  if (!running_.empty()) {
    std::vector<ChannelOperation> left_behind;
    for (ChannelOperation& operation : running_) {
      ChannelOperation rest;
      rest.request = operation.request;
      rest.memory = operation.memory;
      left_behind.push_back(std::move(rest));
    }
    settings_.abandon(std::move(left_behind));
  }
  std::vector<ChannelOperation> running;
  running.swap(running_);
  collective_runs_ = false;
  std::deque<ChannelOperation> waiting;
  waiting.swap(waiting_);
  for (ChannelOperation& operation : running) end(std::move(operation), reason);
  for (ChannelOperation& operation : waiting) end(std::move(operation), reason);
}

std::string Channel::describe(const ChannelOperation& operation) const {
  return fmt::format("{}: {}", settings_.name,
                     operation.collective ? lockstep::describe(*operation.collective) : operation.text);
}

Status Channel::mpi_error(const ChannelOperation& operation, int code) const {
  std::array<char, 1024> text{};
  settings_.mpi->error_text(code, text.data(), text.size());
  return Status(StatusCode::unavailable,
                fmt::format("{}: MPI returned error {}: {}", describe(operation), code, text.data()));
}

}  // namespace lockstep::mpi
