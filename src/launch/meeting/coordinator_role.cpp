#include "launch/meeting/coordinator_role.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "membership/attester.h"
#include "store/read_now.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds kAttesterTimeout{300};
constexpr std::chrono::milliseconds kWitnessTimeout{200};
constexpr std::chrono::milliseconds kWitnessInterval{500};

}  // namespace

CoordinatorRole::CoordinatorRole(const Options& options, JobState known, std::shared_ptr<Store> store)
    : options_(options),
      store_(std::move(store)),
      coordinator_(options.self, options.job, std::move(known), options.coordinator, Coordinator::Clock::now()) {}

Status CoordinatorRole::update() {
  const auto pairs = store_->list(kLaunchPrefix, deadline());
  if (!pairs.ok()) return pairs.status();
  const auto find_end = [this](const membership::Member& node) -> std::optional<membership::Attestation> {
    return membership::find_attestation(node, "", "", options_.secret, Deadline::after(kAttesterTimeout));
  };
  ask_witness();
  coordinator_.update(*pairs, Coordinator::Clock::now(), find_end);
  LOCKSTEP_RETURN_IF_ERROR(collect_roster());
  return publish();
}

void CoordinatorRole::ask_witness() {
  const auto now = Coordinator::Clock::now();
  if (options_.witness.empty() || (witness_asked_at_ && now - *witness_asked_at_ < kWitnessInterval)) return;
  witness_asked_at_ = now;
  auto asked = membership::ask_witness(options_.witness, options_.secret, Deadline::after(kWitnessTimeout));
  if (!asked.ok()) return coordinator_.set_witness(std::nullopt, nullptr);
  const auto vote = [this, seen = *asked](const std::string& name, const membership::Generation& round) {
    const Status voted = membership::request_vote(options_.witness, options_.secret, seen, name, round,
                                                  Deadline::after(kAttesterTimeout));
    if (!voted.ok()) log_info("round {} has no vote: {}", round.number - 1, voted.message());
    witness_asked_at_.reset();  // what was seen is out of date
    return voted.ok();
  };
  coordinator_.set_witness(*std::move(asked), vote);
}

Status CoordinatorRole::publish() {
  for (const auto& [id, reason] : coordinator_.refusals()) {
    if (written_refusals_.contains(id)) continue;
    log_warn("{}", reason);
    LOCKSTEP_RETURN_IF_ERROR(store_->set(kRefusedPrefix + id, reason, deadline()));
    written_refusals_[id] = reason;
  }
  const std::string state = format(job_state());
  if (state != written_state_) {
    LOCKSTEP_RETURN_IF_ERROR(store_->set(kJobStateKey, state, deadline()));
    written_state_ = state;
    ++version_;
  }
  return store_->set(kStampKey, fmt::format("{}/{} {}", options_.self.id, version_, ++beat_), deadline());
}

Status CoordinatorRole::collect_roster() {
  const auto [node, number] = coordinator_.newest_roster();
  if (number <= job_state().roster_number) return {};
  const auto roster = read_now(*store_, kRosterPrefix + node, deadline());
  if (!roster.ok()) return roster.status();
  if (!*roster || roster_number(**roster) < number) return {};  // it has not arrived yet
  LOCKSTEP_RETURN_IF_ERROR(store_->set(kRosterKey, **roster, deadline()));
  coordinator_.set_roster_number(roster_number(**roster));
  return {};
}

void CoordinatorRole::step_down() {
  for (const auto& key : {kJobStateKey, kStampKey}) {
    const auto removed = store_->remove(key, deadline());
    if (!removed.ok()) log_warn("cannot hand over to another coordinator: {}", removed.status().message());
  }
}

}  // namespace lockstep::launch
