#include "ddp/sync/straggler_watch.h"

#include <algorithm>
#include <cstring>

#include "base/host_name.h"
#include "base/log.h"
#include "record/straggler.h"

namespace lockstep::detail {

namespace {

constexpr std::size_t kComparedSteps = 48;
constexpr std::uint64_t kFewestStepsBetween = 20;
constexpr double kWorthLogging = 0.1;  // of a step

// What each rank sends.
struct SentSteps {
  char host[64] = {};
  std::uint64_t count = 0;
  record::RecordedStep steps[kComparedSteps] = {};
};

SentSteps own_steps(std::uint32_t model) {
  SentSteps sent;
  const std::string host = host_name();
  std::memcpy(sent.host, host.data(), std::min(host.size(), sizeof(sent.host) - 1));
  const auto steps = record::recent_steps(record::Recorder::process().area(), model, kComparedSteps);
  sent.count = steps.size();
  std::copy(steps.begin(), steps.end(), sent.steps);
  return sent;
}

}  // namespace

StragglerReport StragglerWatch::compare() const {
  const SentSteps mine = own_steps(clock_.model());
  const at::Tensor input = at::empty({static_cast<std::int64_t>(sizeof(SentSteps))}, at::kByte);
  std::memcpy(input.data_ptr(), &mine, sizeof(mine));
  const at::Tensor all = at::empty({static_cast<std::int64_t>(sizeof(SentSteps)) * group_->size()}, at::kByte);
  group_->all_gather(input, all, {}).wait();

  std::vector<record::RankSteps> ranks;
  for (int rank = 0; rank < group_->size(); ++rank) {
    SentSteps sent;
    std::memcpy(&sent, all.data_ptr<std::uint8_t>() + sizeof(sent) * static_cast<std::size_t>(rank), sizeof(sent));
    sent.host[sizeof(sent.host) - 1] = '\0';
    const std::size_t count = std::min<std::size_t>(sent.count, kComparedSteps);
    ranks.push_back({.rank = rank, .host = sent.host, .steps = {sent.steps, sent.steps + count}});
  }
  StragglerReport report = record::find_straggler(ranks);
  if (report.straggler && report.straggler->bucket >= 0) {
    report.straggler->parameters = parameters_(static_cast<std::size_t>(report.straggler->bucket));
  }
  return report;
}

void StragglerWatch::after_step() {
  if (group_->size() < 2 || interval_.count() <= 0 || clock_.steps() < next_) return;
  const StragglerReport report = compare();
  next_ = clock_.steps() + kFewestStepsBetween;
  if (report.steps == 0) return;
  const double steps = std::chrono::duration<double>(interval_).count() / std::max(report.step_seconds, 1e-6);
  next_ = std::max(next_, clock_.steps() + static_cast<std::uint64_t>(steps));
  if (!report.straggler || report.straggler->cost_seconds < kWorthLogging * report.step_seconds) return;
  if (group_->rank() == 0) log_warn("{}", report.to_string());
}

}  // namespace lockstep::detail
