#include "mpi/supervisor.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace lockstep::mpi {
namespace {

using Clock = Deadline::Clock;
using std::chrono::milliseconds;

constexpr milliseconds kInterval{250};
// After this long the reports of all ranks are newer than the deadline that passed.
constexpr milliseconds kReportsAreFresh{700};
// An operation that waits this long is checked: it may never complete.
constexpr milliseconds kSlow{1000};
constexpr std::chrono::seconds kStoreLimit{2};
// The store ended with rank 0, which has left; an operation that waits this long waits for rank 0.
constexpr std::chrono::seconds kStoreIsGone{5};

std::string folder_of(const std::string& group) { return fmt::format("mpi/{}/", group); }
std::string key_of(const std::string& group, int rank) { return fmt::format("{}{}", folder_of(group), rank); }

}  // namespace

Supervisor::Supervisor(std::shared_ptr<Store> store, std::string who) : store_(std::move(store)), who_(std::move(who)) {
  thread_ = std::thread([this] { run(); });
}

Supervisor::~Supervisor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Supervisor::add(Group group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(std::make_shared<Watched>(Watched{std::move(group), {}}));
}

void Supervisor::remove(const std::shared_ptr<Channel>& channel) {
  std::shared_ptr<Watched> watched;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(groups_.begin(), groups_.end(),
                                    [&](const auto& candidate) { return candidate->group.channel == channel; });
    if (found == groups_.end()) return;
    watched = *found;
    groups_.erase(found);
  }
  publish(*watched, true);
}

void Supervisor::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

void Supervisor::run() {
  for (;;) {
    std::vector<std::shared_ptr<Watched>> groups;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kInterval, [this] { return woken_ || stopping_; });
      if (stopping_) return;
      woken_ = false;
      groups = groups_;
    }
    for (const auto& watched : groups) {
      publish(*watched, false);
      check(*watched);
    }
  }
}

void Supervisor::publish(Watched& watched, bool left) {
  const std::lock_guard lock(publishing_);
  if (watched.published == "left") return;
  const ChannelProgress progress = watched.group.channel->progress();
  const std::string report = format(Report{.issued = progress.issued,
                                           .front = progress.front,
                                           .left = left,
                                           .who = fmt::format("rank {} ({})", watched.group.rank, who_),
                                           .text = progress.text,
                                           .done = progress.done,
                                           .done_text = progress.done_text});
  if (report == watched.published) return;
  const Status written =
      store_->set(key_of(watched.group.key, watched.group.rank), report, Deadline::after(kStoreLimit));
  // The rank that serves the store was lost: the watch group reports that, with more detail.
  if (!written.ok()) log_debug("{}", written.to_string());
  watched.published = left ? "left" : report;
}

void Supervisor::check(const Watched& watched) {
  const Group& group = watched.group;
  const ChannelProgress progress = group.channel->progress();
  const auto now = Clock::now();
  const bool expired = progress.expired && now - *progress.expired >= kReportsAreFresh;
  if (progress.front == 0 || !(expired || now - progress.front_issued >= kSlow)) return;
  const auto reports = store_->list(folder_of(group.key), Deadline::after(kStoreLimit));
  const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - progress.front_issued);
  std::map<int, Report> others;
  if (reports.ok()) {
    for (int rank = 0; rank < group.size; ++rank) {
      const auto found = reports->find(key_of(group.key, rank));
      if (found == reports->end()) continue;
      if (const Result<Report> report = parse_report(found->second); report.ok()) others[rank] = *report;
    }
  } else if (!expired && !(reports.status().code() == StatusCode::peer_lost && waited >= kStoreIsGone)) {
    return;
  }
  Status verdict = check_reports(group.name, group.rank, group.size, progress, others, expired, waited);
  if (!reports.ok()) {
    verdict = {expired ? StatusCode::timed_out : StatusCode::peer_lost,
               fmt::format(
                   "{}: operation #{}, {}: not complete after {}; the missing ranks cannot be named, because rank 0 of "
                   "the job has left it or does not answer ({})",
                   group.name, progress.front, progress.text, waited, reports.status().message())};
  }
  if (verdict.ok()) return;
  // It may have ended meanwhile: then the verdict does not apply.
  if (group.channel->progress().front == progress.front) group.channel->fail(verdict, true);
}

}  // namespace lockstep::mpi
