#include "elastic/participant.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/failpoint.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/process_state.h"
#include "base/random.h"
#include "base/seconds.h"
#include "base/start_thread.h"
#include "elastic/forming.h"
#include "membership/attester.h"
#include "membership/roster.h"
#include "membership/succession.h"
#include "record/recorder.h"
#include "rendezvous/environment.h"
#include "rendezvous/network_interface.h"
#include "rendezvous/process_identity.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/whole_number.h"
#include "store/read_now.h"

namespace lockstep::elastic {
namespace {

using std::chrono::milliseconds;
using Clock = Deadline::Clock;

constexpr milliseconds kProbeTimeout{500};
constexpr milliseconds kFollowTime{50};
// For a process that was left behind to end after SIGKILL.
constexpr milliseconds kEndTime{5000};
constexpr milliseconds kNewcomerPollInterval{50};
constexpr milliseconds kRosterPause{200};
constexpr milliseconds kWitnessTimeout{200};
// At the start, where nothing is lost by waiting: without its answer, the first generation has no witness.
constexpr milliseconds kFirstWitnessTimeout{5000};
constexpr milliseconds kWitnessInterval{1000};
// How many times in a row the witness must be found changed before a new generation takes that into account.
constexpr int kWitnessChecks = 3;
// How long one attempt at the first generation may take after another has failed. Other processes may have succeeded,
// which only reading the store again shows.
constexpr milliseconds kFirstAttempt{10000};
constexpr const char* kFirstGeneration = "elastic/first";

int number_from(const Environment& environment, const char* name, int otherwise, int minimum) {
  const auto text = environment(name);
  if (!text) return otherwise;
  return value_or_throw(
      parse_whole_number(fmt::format("the environment variable {}", name), *text, minimum, kMaxWorldSize));
}

// The address at which others reach this process: the one from which it reaches the master.
std::string member_store_host(const ParticipantOptions& options, const std::string& master) {
  const std::string wanted = wanted_interface(options.init.group.network_interface);
  return value_or_throw(choose_local_address(wanted, master.empty() ? "127.0.0.1" : master)).host();
}

}  // namespace

ParticipantOptions ParticipantOptions::from_environment(ParticipantOptions base) {
  const Environment environment = process_environment();
  base.policy.min_ranks = number_from(environment, "LOCKSTEP_MIN_RANKS", base.policy.min_ranks, 1);
  base.policy.max_ranks = number_from(environment, "LOCKSTEP_MAX_RANKS", base.policy.max_ranks, 1);
  base.roster = environment("LOCKSTEP_ROSTER").value_or(base.roster);
  base.attester = environment("LOCKSTEP_ATTESTER").value_or(base.attester);
  base.witness = environment("LOCKSTEP_WITNESS").value_or(base.witness);
  base.newcomer = number_from(environment, "LOCKSTEP_NEWCOMER", base.newcomer ? 1 : 0, 0) == 1;
  if (base.policy.min_ranks > base.policy.max_ranks) {
    throw Error({StatusCode::invalid_argument, fmt::format("LOCKSTEP_MIN_RANKS is {}, but LOCKSTEP_MAX_RANKS is {}",
                                                           base.policy.min_ranks, base.policy.max_ranks)});
  }
  return base;
}

Participant::Participant(ParticipantOptions options)
    : options_(std::move(options)), secret_(value_or_throw(Secret::from_environment())) {
  const Placement placement = value_or_throw(find_placement(options_.init, process_environment()));
  first_rank_ = placement.rank;
  first_size_ = placement.world_size;
  const ProcessIdentity process = this_process();
  self_ = {.id = random_hex(16), .host = host_name(), .pid = process.pid, .started = process.started};
  const std::string space = process_space();
  if (!options_.roster.empty() && !space.empty()) self_.site = fmt::format("{}:{}", space, options_.roster);
  if (!options_.roster.empty()) self_.attester = options_.attester;
  member_store_ =
      value_or_throw(MemberStore::open(member_store_host(options_, placement.master_host), secret_, self_.id));
  self_.store_address = member_store_->address();
  if (!options_.roster.empty()) {
    const membership::Roster roster = value_or_throw(membership::read_roster(options_.roster));
    job_has_ended_ = roster.finished;
    newcomer_ = options_.newcomer && roster.generation.number > 0;
    if (newcomer_) accepted_ = roster.generation;
  }
  set_log_rank(first_rank_);
  newcomer_watcher_ = value_or_throw(start_thread("watches for newcomers", [this] { watch_for_newcomers(); }));
}

Participant::~Participant() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  newcomer_watcher_.join();
}

void Participant::watch_for_newcomers() {
  std::unique_lock lock(mutex_);
  auto witness_asked_at = Clock::now();
  int changes = 0;
  while (!stop_.wait_for(lock, kNewcomerPollInterval, [this] { return stopping_; })) {
    if (!accepts_newcomers_.load()) continue;
    const std::string witness = established_witness_;
    const bool has_room = has_room_;
    lock.unlock();
    const auto registrants = member_store_->registrants();
    if (!options_.witness.empty() && Clock::now() - witness_asked_at >= kWitnessInterval) {
      changes = has_other_witness(witness) ? changes + 1 : 0;
      witness_asked_at = Clock::now();
    }
    const bool is_due = (has_room && registrants.ok() && !registrants->empty()) || changes >= kWitnessChecks;
    newcomers_wait_.store(is_due && accepts_newcomers_.load(), std::memory_order_relaxed);
    lock.lock();
  }
}

std::optional<membership::WitnessView> Participant::find_witness(milliseconds timeout) const {
  if (options_.witness.empty()) return std::nullopt;
  auto view = membership::ask_witness(options_.witness, secret_, Deadline::after(timeout));
  if (view.ok()) return *std::move(view);
  log_debug("{}", view.status().message());
  return std::nullopt;
}

bool Participant::has_other_witness(const std::string& established) const {
  const auto present = find_witness(kWitnessTimeout);
  return present ? !established.starts_with(present->id + "/") : !established.empty();
}

bool Participant::collect_votes(const membership::Action& action,
                                const std::optional<membership::WitnessView>& witness) const {
  for (const std::string& name : action.votes) {
    const Status voted = membership::request_vote(options_.witness, secret_, *witness, name, action.answer.generation,
                                                  Deadline::after(kProbeTimeout));
    if (voted.ok()) continue;
    log_warn("generation {} has no vote: {}", action.answer.generation.number, voted.message());
    return false;
  }
  return true;
}

bool Participant::accept(const Generation& generation) {
  if (generation.number <= accepted_.number && generation.id != accepted_.id) return false;
  if (!options_.roster.empty()) {
    const membership::Roster present =
        value_or_throw(membership::offer_roster(options_.roster, {.generation = generation}));
    if (present.finished || present.generation.id != generation.id) {
      job_has_ended_ = present.finished;
      if (present.generation.number > accepted_.number) accepted_ = present.generation;
      return false;
    }
  }
  accepted_ = generation;
  throw_if_error(member_store_->publish(generation));
  return true;
}

void Participant::end_left_behind(const Generation& previous, const Generation& next) {
  for (const Member& member : previous.members) {
    if (member.site.empty() || member.site != self_.site || next.rank_of(member.id) >= 0) continue;
    const ProcessIdentity process{.pid = member.pid, .started = member.started};
    if (has_ended(process)) continue;
    log_warn("ending {}: generation {} continues without it, and it shares memory with this process", member.describe(),
             next.number);
    throw_if_error(end_process(process, Deadline::after(kEndTime)));
  }
}

void Participant::establish(const RankStart& start) {
  established_ = accepted_;
  registration_.reset();
  set_log_rank(start.group->rank(), start.generation);
  record::Recorder::process().set_world(start.group->rank(), start.group->size(),
                                        static_cast<std::uint32_t>(start.generation));
  {
    const std::lock_guard lock(mutex_);
    established_witness_ = established_.witness;
    has_room_ = start.group->size() < options_.policy.max_ranks;
  }
  newcomers_wait_.store(false, std::memory_order_relaxed);
  accepts_newcomers_.store(start.group->rank() == 0);
}

std::optional<Participant::RankStart> Participant::next_generation(std::int64_t step) {
  accepts_newcomers_.store(false);
  newcomers_wait_.store(false, std::memory_order_relaxed);
  if (job_has_ended_) return std::nullopt;
  if (accepted_.number == 0) return first_generation(step);
  while (true) {
    const auto began = Clock::now();
    if (auto start = recover(step)) {
      if (!start->group) return std::nullopt;
      log_info("generation {} established after {:.0f} ms: {} ranks, this is rank {}", start->generation,
               std::chrono::duration<double, std::milli>(Clock::now() - began).count(), start->members.size(),
               start->group->rank());
      establish(*start);
      return start;
    }
  }
}

// Forms the group of all processes that were started together, over the store that the launcher or rank 0 serves.
std::optional<Participant::RankStart> Participant::first_generation(std::int64_t step) {
  const Deadline deadline = Deadline::after(options_.init.group.init_timeout);
  const MeetingPoint point = value_or_throw(find_meeting_point(options_.init, secret_, deadline));
  meeting_store_ = point.store;
  while (true) {
    if (auto start = try_first_generation(*point.store, deadline)) {
      establish(*start);
      return start;
    }
    if (accepted_.number == 0) continue;
    // The others got further before a process was lost.
    return next_generation(step);
  }
}

std::optional<Participant::RankStart> Participant::try_first_generation(Store& store, const Deadline& deadline) {
  CommunicatorOptions group_options = options_.init.group;
  group_options.name = "elastic";
  if (!std::exchange(first_attempt_, false)) group_options.init_timeout = kFirstAttempt;
  group_options.init_timeout =
      std::min(group_options.init_timeout, std::chrono::duration_cast<milliseconds>(deadline.remaining()));
  try {
    RankStart start{.group = Communicator::create(meeting_store_, first_rank_, first_size_, group_options),
                    .generation = 1};
    // The list of members; rank 0 chooses its id.
    std::vector<char> mine(1024), all(mine.size() * static_cast<std::size_t>(first_size_));
    const std::string id = random_hex(8);
    Generation own{.number = 1, .id = id, .job = id, .members = {self_}};
    if (const auto witness = first_rank_ == 0 ? find_witness(kFirstWitnessTimeout) : std::nullopt) {
      own.witness = membership::next_register({}, &*witness, own.id);
    }
    const std::string text = membership::format(own);
    if (text.size() >= mine.size()) throw Error({StatusCode::internal, "a member's record is too long"});
    std::copy(text.begin(), text.end(), mine.begin());
    start.group->all_gather(ConstBuffer{mine.data(), mine.size(), DType::i8},
                            Buffer{all.data(), all.size(), DType::i8});
    Generation first;
    for (int rank = 0; rank < first_size_; ++rank) {
      const char* const record = all.data() + static_cast<std::size_t>(rank) * mine.size();
      const Generation one = value_or_throw(membership::parse_generation(record));
      if (rank == 0) first = one;
      if (rank != 0) first.members.push_back(one.members.at(0));
    }
    if (!accept(first)) return std::nullopt;
    throw_if_error(store.set(kFirstGeneration, membership::format(first), deadline));
    start.group->barrier();
    start.job = first.job;
    start.members = first.members;
    start.transfer = false;
    return start;
  } catch (const Error& error) {
    if (deadline.expired() || (error.code() != StatusCode::peer_lost && error.code() != StatusCode::timed_out)) throw;
    log_warn("the first generation was not formed, trying again: {}", error.what());
  }
  const auto known = read_now(store, kFirstGeneration, Deadline::after(milliseconds(1000)));
  if (known.ok() && *known) {
    const Generation first = value_or_throw(membership::parse_generation(**known));
    if (first.rank_of(self_.id) >= 0) (void)accept(first);
  }
  return std::nullopt;
}

ProbeResult Participant::probe(const Member& member) {
  ProbeResult result = membership::probe_member_store(member, secret_, Deadline::after(kProbeTimeout));
  if (result.kind == ProbeResult::Kind::answered) return result;
  if (auto attestation =
          membership::find_attestation(member, self_.site, options_.roster, secret_, Deadline::after(kProbeTimeout))) {
    return {.kind = ProbeResult::Kind::ended, .accepted = std::move(attestation->accepted)};
  }
  return result;
}

std::vector<ProbeResult> Participant::probe(const std::vector<Member>& members) {
  std::vector<ProbeResult> results(members.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < members.size(); ++i) {
    const auto ask = [&, i] { results[i] = probe(members[i]); };
    auto thread = start_thread("asks a member", ask);
    if (thread.ok()) {
      threads.push_back(*std::move(thread));
    } else {
      ask();  // later, but the same
    }
  }
  results.at(0) = probe(members.at(0));
  for (std::thread& thread : threads) thread.join();
  return results;
}

Recovery::Followed Participant::follow(const Member& member, const Registration& registration) {
  if (auto registrants = member_store_->registrants(); registrants.ok()) {
    send_answer({.kind = Answer::Kind::again,
                 .generation = registration.accepted,
                 .reason = "this process follows another one",
                 .void_ids = registration.void_ids},
                *registrants);
  }
  if (!registration_ || registration_->at().id != member.id || !(registration_->registration() == registration)) {
    registration_.reset();
    auto started = RegistrationClient::begin(member, registration, secret_, Deadline::after(kProbeTimeout));
    if (!started.ok()) return {.lost = true};
    registration_ = *std::move(started);
    failpoint("recovery.registered");
  }
  Recovery::Followed followed = registration_->wait(kFollowTime);
  if (followed.lost) registration_.reset();  // the member may be alive: a new registration needs a new connection
  return followed;
}

void Participant::send_answer(const Answer& answer, const std::vector<MemberStore::Registrant>& registrants) {
  for (const MemberStore::Registrant& registrant : registrants) {
    const Status sent = member_store_->answer(registrant, answer);
    if (!sent.ok()) log_debug("answering {}: {}", registrant.registration.member.describe(), sent.message());
  }
}

void Participant::await_writable_roster() const {
  const Deadline deadline = Deadline::after(options_.policy.quorum_timeout);
  for (bool warned = false; !options_.roster.empty(); std::this_thread::sleep_for(kRosterPause)) {
    const Status status = membership::check_writable(options_.roster);
    if (status.ok()) return;
    if (deadline.expired()) throw Error(status);
    if (!std::exchange(warned, true)) log_warn("waiting: {}", status.message());
  }
}

// Returns nothing if forming failed and has to be retried, and a start without a group if the job has finished.
std::optional<Participant::RankStart> Participant::recover(std::int64_t step) {
  if (accepted_.rank_of(self_.id) < 0) await_writable_roster();
  Recovery recovery(
      {.member = self_, .accepted = accepted_, .established = established_, .step = step, .void_ids = void_ids_},
      options_.policy, Clock::now(), [] { return random_hex(8); });
  std::string logged;
  const auto began = Clock::now();
  auto logged_at = began;
  auto witness_asked_at = began - kWitnessTimeout;
  while (true) {
    const membership::Action action = recovery.next(Clock::now());
    if (recovery.waits_for() != logged && Clock::now() - logged_at > std::chrono::seconds(2)) {
      logged = recovery.waits_for();
      logged_at = Clock::now();
      log_warn("waiting: {} ({:.0f} s so far; the job ends after {:.0f} s without a quorum)", logged,
               seconds(Clock::now() - began), seconds(options_.policy.quorum_timeout));
    }
    const Member& with = action.members.empty() ? action.member : action.members.front();
    log_debug("recovery: {} {} ({})", to_string(action.kind), with.describe(), recovery.waits_for());
    if (action.pause > membership::Duration{}) std::this_thread::sleep_for(action.pause);
    const bool keeps_registration = action.kind == membership::Action::Kind::follow ||
                                    action.kind == membership::Action::Kind::probe ||
                                    action.kind == membership::Action::Kind::join;
    if (!keeps_registration) registration_.reset();
    switch (action.kind) {
      case membership::Action::Kind::probe: {
        const std::vector<ProbeResult> results = probe(action.members);
        for (std::size_t i = 0; i < results.size(); ++i) {
          recovery.on_probe(action.members[i], results[i], Clock::now());
        }
        break;
      }
      case membership::Action::Kind::follow: {
        const Recovery::Followed followed = follow(action.member, recovery.registration());
        recovery.on_follow(action.member, followed, Clock::now());
        break;
      }
      case membership::Action::Kind::collect: {
        auto registrants = member_store_->registrants();
        if (!registrants.ok()) throw Error(registrants.status());
        registrants_ = *std::move(registrants);
        if (Clock::now() - witness_asked_at >= kWitnessTimeout) {
          recovery.on_witness(find_witness(kWitnessTimeout));
          witness_asked_at = Clock::now();
        }
        std::vector<Registration> registrations;
        for (const MemberStore::Registrant& registrant : registrants_) registrations.push_back(registrant.registration);
        recovery.on_registrations(registrations, Clock::now());
        break;
      }
      case membership::Action::Kind::refresh: {
        const membership::Roster roster =
            options_.roster.empty() ? membership::Roster{} : value_or_throw(membership::read_roster(options_.roster));
        recovery.on_roster(roster.generation, roster.finished, Clock::now());
        break;
      }
      case membership::Action::Kind::answer:
        send_answer(action.answer, registrants_);
        registrants_.clear();
        break;
      case membership::Action::Kind::join: {
        void_ids_ = recovery.registration().void_ids;
        if (action.leads && !collect_votes(action, recovery.witness())) return std::nullopt;
        auto start = form(action.answer, action.leads);
        if (start && start->group)
          start->has_state = step >= 0 && !action.answer.generation.is_outdated(start->group->rank());
        return start;
      }
      case membership::Action::Kind::give_up:
        if (action.leads) send_answer(action.answer, registrants_);
        throw Error(
            {StatusCode::unavailable, fmt::format("the elastic job cannot continue: {}", action.answer.reason)});
      case membership::Action::Kind::finished: return RankStart{};
    }
  }
}

std::optional<Participant::RankStart> Participant::form(const Answer& answer, bool leads) {
  const Deadline deadline = Deadline::after(options_.forming);
  const bool is_outdated = answer.generation.is_outdated(answer.generation.rank_of(self_.id));
  const Generation previous = is_outdated ? Generation{} : established_;
  if (!accept(answer.generation)) {
    log_warn("generation {} is not joined: another one was accepted on this host", answer.generation.number);
    registration_.reset();
    return job_has_ended_ ? std::optional(RankStart{}) : std::nullopt;
  }
  Forming forming{.answer = answer, .self = self_.id, .store = nullptr, .group = options_.init.group};
  forming.group.name = "elastic";
  if (forming.group.network_interface.empty()) {
    forming.group.network_interface = parse_host_port(self_.store_address).value().host;
  }
  if (leads) {
    forming.member_store = member_store_.get();
    for (const MemberStore::Registrant& registrant : registrants_) {
      if (answer.generation.rank_of(registrant.registration.member.id) >= 0) forming.registrants.push_back(registrant);
    }
    failpoint("recovery.decided");
    send_answer(answer, forming.registrants);
    failpoint("recovery.answered");
  }
  auto store = leads ? Result<std::shared_ptr<Store>>(member_store_->store())
                     : membership::connect_to_member_store(registration_->at(), secret_, deadline);
  Status status = store.status();
  if (status.ok()) {
    forming.store = *std::move(store);
    failpoint("group.forming");
    auto group = form_group(forming, deadline);
    if (group.ok()) {
      failpoint("group.formed");
      end_left_behind(previous, answer.generation);
      return RankStart{.group = *std::move(group),
                       .generation = answer.generation.number,
                       .job = answer.generation.job,
                       .members = answer.generation.members,
                       .source = answer.source,
                       .transfer = answer.transfer};
    }
    status = group.status();
  }
  log_warn("generation {} was not formed, trying again: {}", answer.generation.number, status.to_string());
  registration_.reset();
  return std::nullopt;
}

void Participant::finish() {
  accepts_newcomers_.store(false);
  if (!options_.roster.empty()) {
    const auto written = membership::offer_roster(options_.roster, {.generation = accepted_, .finished = true});
    if (!written.ok()) log_warn("{}", written.status().message());
  }
  if (auto registrants = member_store_->registrants(); registrants.ok()) {
    send_answer({.kind = Answer::Kind::finished, .reason = "the job has ended"}, *registrants);
  }
}

}  // namespace lockstep::elastic
