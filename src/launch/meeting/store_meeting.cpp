#include "launch/meeting/store_meeting.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "base/unique_fd.h"
#include "launch/meeting/meeting_thread.h"
#include "launch/process/rank_port.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kStopCheck = 50ms;
constexpr std::chrono::seconds kFirstProgress = 10s;

std::string list_of(const std::vector<HostPort>& endpoints) {
  std::string text;
  for (const auto& endpoint : endpoints) text += (text.empty() ? "" : ",") + to_string(endpoint);
  return text;
}

}  // namespace

class StoreMeeting::Impl {
 public:
  Impl(const StoreMeetingOptions& given, OwnStore own, UniqueFd reserved)
      : options(given), rank_port(std::move(reserved)), shared(NodeView(given.self, given.job)) {
    shared.address = own.address;
    thread.emplace(options, std::move(own), &shared);
  }

  const StoreMeetingOptions options;
  const UniqueFd rank_port;
  MeetingShared shared;
  std::optional<MeetingThread> thread;  // ends before what it uses
};

Result<std::unique_ptr<StoreMeeting>> StoreMeeting::open(StoreMeetingOptions options) {
  if (options.endpoints.empty()) {
    return Status(StatusCode::invalid_argument,
                  "several nodes need an endpoint: give --rdzv-endpoint host:port, the same on all nodes");
  }
  auto own = open_own_store(options.endpoints, options.local_address, options.secret);
  if (!own.ok()) return own.status();
  options.self.address = own->address;
  const auto place = parse_host_port(own->address);
  if (!place.ok()) return place.status();
  if (options.open_attester) {
    auto attester = options.open_attester(place->host);
    if (!attester.ok()) return attester.status();
    options.self.attester = *std::move(attester);
  }
  UniqueFd rank_port;
  if (!options.job.serve_store) {
    auto reserved = reserve_rank_port(place->host, 0);
    if (!reserved.ok()) return reserved.status();
    options.self.rank_port = reserved->port;
    rank_port = std::move(reserved->fd);
  }
  auto impl = std::make_unique<Impl>(options, *std::move(own), std::move(rank_port));
  LOCKSTEP_RETURN_IF_ERROR(impl->thread->start());
  return std::unique_ptr<StoreMeeting>(new StoreMeeting(std::move(impl)));
}

StoreMeeting::StoreMeeting(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StoreMeeting::~StoreMeeting() {
  {
    const std::lock_guard lock(impl_->shared.mutex);
    impl_->shared.view.set_left();
    impl_->shared.leaving = true;
    impl_->shared.changed.notify_all();
  }
  impl_->thread.reset();
}

// Why there is no round yet. The mutex is held.
std::string StoreMeeting::progress() const {
  const auto& shared = impl_->shared;
  if (!shared.problem.empty() || shared.view.known().progress.empty()) {
    return fmt::format("there is no coordinator at {}{}{}", list_of(impl_->options.endpoints),
                       shared.problem.empty() ? "" : ": ", shared.problem);
  }
  return shared.view.known().progress;
}

Result<Round> StoreMeeting::next_round(Deadline deadline, bool (*stop_requested)()) {
  auto& shared = impl_->shared;
  const auto began = Deadline::Clock::now();
  auto next_progress = began + kFirstProgress;
  std::unique_lock lock(shared.mutex);
  shared.view.ask_for_round();
  shared.changed.notify_all();
  const auto give_up = [&](StatusCode code, std::string message) {
    shared.view.give_up_round();
    return Status(code, std::move(message));
  };
  while (true) {
    if (!shared.fatal.ok()) return give_up(shared.fatal.code(), shared.fatal.message());
    if (const auto& over = shared.view.known().over; !over.empty()) return give_up(StatusCode::aborted, over);
    if (auto round = shared.view.enter_round()) {
      shared.changed.notify_all();
      return *std::move(round);
    }
    const auto now = Deadline::Clock::now();
    const std::chrono::duration<double> waited = now - began;
    if (deadline.expired()) {
      return give_up(StatusCode::timed_out,
                     fmt::format("the nodes did not meet within {:.1f} s: {}", waited.count(), progress()));
    }
    if (now >= next_progress) {
      log_warn("waiting for other nodes for {:.0f} s: {}", waited.count(), progress());
      next_progress = now + (now - began);
    }
    // stop_requested is the caller's code: do not hold the mutex.
    lock.unlock();
    const bool stop = stop_requested != nullptr && stop_requested();
    lock.lock();
    if (stop) return give_up(StatusCode::aborted, "interrupted while waiting for other nodes");
    shared.changed.wait_until(lock, deadline.earlier(Deadline::after(kStopCheck)).when());
  }
}

Status StoreMeeting::report_failure(const RankFailure& failure) {
  const std::lock_guard lock(impl_->shared.mutex);
  impl_->shared.view.add_failure(failure);
  impl_->shared.changed.notify_all();
  return {};
}

Status StoreMeeting::report_finished() {
  const std::lock_guard lock(impl_->shared.mutex);
  impl_->shared.view.set_finished();
  impl_->shared.changed.notify_all();
  return {};
}

MeetingEvent StoreMeeting::poll() {
  const std::lock_guard lock(impl_->shared.mutex);
  return impl_->shared.view.take_event().value_or(MeetingEvent());
}

Result<int> StoreMeeting::count_restart() {
  auto& shared = impl_->shared;
  std::unique_lock lock(shared.mutex);
  const auto ask = shared.view.ask_restart();
  shared.changed.notify_all();
  const auto deadline = Deadline::after(3 * impl_->options.silent_timeout);
  std::optional<int> restarts;
  shared.changed.wait_until(lock, deadline.when(), [&] {
    restarts = shared.view.restarts_counted(ask);
    return restarts || !shared.view.known().over.empty();
  });
  if (restarts) return *restarts;
  if (const auto& over = shared.view.known().over; !over.empty()) return Status(StatusCode::aborted, over);
  return Status(StatusCode::timed_out, "the restart could not be counted: " + progress());
}

void StoreMeeting::end_job(const std::string& reason) {
  const std::lock_guard lock(impl_->shared.mutex);
  impl_->shared.view.set_over(reason);
  impl_->shared.changed.notify_all();
}

Status StoreMeeting::publish_roster(const std::string& roster) {
  if (roster_number(roster) < 0) {
    return Status(StatusCode::invalid_argument, "the first line of the roster is not a number");
  }
  const std::lock_guard lock(impl_->shared.mutex);
  if (impl_->shared.view.offer_roster(roster)) impl_->shared.changed.notify_all();
  return {};
}

std::optional<std::string> StoreMeeting::newest_roster() {
  const std::lock_guard lock(impl_->shared.mutex);
  return impl_->shared.view.roster();
}

std::string StoreMeeting::address() const {
  const std::lock_guard lock(impl_->shared.mutex);
  return impl_->shared.address;
}

}  // namespace lockstep::launch
