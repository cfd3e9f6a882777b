#include "mpi/channel.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <utility>

namespace lockstep::mpi {

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
      if (operation.collective) operation.sequence = ++progress_.issued;
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

ChannelProgress Channel::progress() const {
  const std::lock_guard lock(mutex_);
  return progress_;
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
      waiting_.push_back(std::move(operation));
    } else if (failure().ok()) {
      start(std::move(operation));
    } else {
      end(std::move(operation), failure());
    }
  }
  if (!taken.empty()) set_front();
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
  if (settings_.health) {
    if (const Status health = settings_.health(); !health.ok()) return fail(health, false);
  }
  const auto now = Deadline::Clock::now();
  const auto expired = [&](const ChannelOperation& operation) { return operation.deadline.when() <= now; };
  for (const ChannelOperation& operation : running_) {
    if (!expired(operation)) continue;
    if (!operation.collective || !settings_.find_missing_ranks) {
      return fail(Status(StatusCode::timed_out,
                         fmt::format("{}: not complete within {}", describe(operation), operation.timeout)),
                  true);
    }
    if (std::exchange(expired_, true)) continue;
    {
      const std::lock_guard lock(mutex_);
      progress_.expired = now;
    }
    settings_.find_missing_ranks();
  }
  // One that waits for its turn has its own deadline; the one in front of it causes the delay.
  for (const ChannelOperation& operation : waiting_) {
    if (expired(operation) && !expired_ && !running_.empty()) {
      return fail(Status(StatusCode::timed_out,
                         fmt::format("{}: not even started within {}, because {} is not complete", describe(operation),
                                     operation.timeout, describe(running_.front()))),
                  true);
    }
  }
}

void Channel::end(ChannelOperation operation, const Status& outcome) {
  operation.start = nullptr;
  operation.then = nullptr;
  operation.finish = nullptr;
  std::shared_ptr<detail::WorkState> work = std::move(operation.work);
  operation.memory.reset();
  if (operation.collective) set_front();
  if (operation.collective && outcome.ok()) {
    const std::lock_guard lock(mutex_);
    progress_.done = operation.sequence;
    progress_.done_text = operation.text;
  }
  work->complete(outcome);
  const std::lock_guard lock(mutex_);
  if (--pending_ == 0) idle_.notify_all();
}

void Channel::end_all(const Status& reason) {
  if (!running_.empty()) {
    std::vector<ChannelOperation> left_behind;
    for (ChannelOperation& operation : running_) {
      ChannelOperation rest;
      rest.text = operation.text;
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

void Channel::set_front() {
  const ChannelOperation* front = waiting_.empty() ? nullptr : &waiting_.front();
  for (const ChannelOperation& operation : running_) {
    if (operation.collective) front = &operation;
  }
  const std::lock_guard lock(mutex_);
  if (expired_ && (front == nullptr || front->sequence != progress_.front)) {  // it completed after all
    expired_ = false;
    progress_.expired.reset();
  }
  progress_.front = front != nullptr ? front->sequence : 0;
  progress_.text = front != nullptr ? front->text : "";
  progress_.front_issued = front != nullptr ? front->issued : Deadline::Clock::time_point{};
}

std::string Channel::describe(const ChannelOperation& operation) const {
  if (!operation.collective) return fmt::format("{}: {}", settings_.name, operation.text);
  return fmt::format("{}: operation #{}, {}", settings_.name, operation.sequence, operation.text);
}

Status Channel::mpi_error(const ChannelOperation& operation, int code) const {
  std::array<char, 1024> text{};
  settings_.mpi->error_text(code, text.data(), text.size());
  return Status(StatusCode::unavailable,
                fmt::format("{}: MPI returned error {}: {}", describe(operation), code, text.data()));
}

}  // namespace lockstep::mpi
