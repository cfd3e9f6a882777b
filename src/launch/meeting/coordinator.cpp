#include "launch/meeting/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/net/socket.h"
#include "base/printable.h"
#include "base/random.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds kAskInterval{200};

std::vector<std::string> to_vector(const std::set<std::string>& ids) { return {ids.begin(), ids.end()}; }

}  // namespace

Coordinator::Coordinator(NodeRecord self, const JobConfig& job, JobState known, const CoordinatorOptions& options,
                         Clock::time_point now)
    : self_(std::move(self)),
      options_(options),
      began_at_(now),
      updated_at_(now),
      last_arrival_(now),
      job_state_(std::move(known)),
      lost_(job_state_.lost.begin(), job_state_.lost.end()),
      ended_(job_state_.ended.begin(), job_state_.ended.end()),
      ended_with_(job_state_.ended_with) {
  job_state_.job = job;
  job_state_.coordinator = self_;
  job_state_.official = false;
  // A node that was silent may join now.
  for (const auto& node : job_state_.round.nodes) {
    if (!ended_.contains(node.id)) lost_.erase(node.id);
  }
}

bool Coordinator::lives(const std::string& id) const {
  const auto peer = peers_.find(id);
  return peer != peers_.end() && peer->second.lives;
}

bool Coordinator::takes_part(const std::string& id) const {
  return std::any_of(job_state_.round.nodes.begin(), job_state_.round.nodes.end(),
                     [&](const auto& node) { return node.id == id; });
}

bool Coordinator::wants_next_round(const NodeState& state) const {
  return state.wants_round && (!takes_part(state.record.id) || state.round == job_state_.round.number || is_void());
}

bool Coordinator::is_alone() const {
  return std::none_of(peers_.begin(), peers_.end(),
                      [&](const auto& peer) { return peer.first != self_.id && peer.second.lives; });
}

std::pair<std::string, std::int64_t> Coordinator::newest_roster() const {
  std::pair<std::string, std::int64_t> newest = {"", -1};
  for (const auto& [id, peer] : peers_) {
    if (peer.lives && peer.state.roster_number > newest.second) newest = {id, peer.state.roster_number};
  }
  return newest;
}

void Coordinator::update(const std::map<std::string, std::string>& pairs, Clock::time_point now,
                         const FindEnd& find_end) {
  // This process itself was stopped or starved, or it waited for hosts that do not answer: most of that time does not
  // count as silence of others. Not all of it, because it may wait for such hosts before every update.
  const Clock::duration counted = options_.silent_timeout / 2;
  if (const auto gap = now - updated_at_; gap > counted) {
    for (auto& [id, peer] : peers_) peer.beaten_at = std::min(peer.beaten_at + (gap - counted), now);
  }
  updated_at_ = now;
  read_announcements(pairs, now);
  refuse_claims();
  adopt_knowledge();
  establish();
  forget_others();
  ask_for_ends(now, find_end);
  notice_losses(now);
  count_restarts();
  decide(now);
  summarize();
}

void Coordinator::read_announcements(const std::map<std::string, std::string>& pairs, Clock::time_point now) {
  // The coordinator was here first, and gets the first ranks unless a node asked for them.
  if (const auto own = pairs.find(kNodePrefix + self_.id); own != pairs.end()) {
    read_announcement(self_.id, own->second, pairs, now);
  }
  for (auto entry = pairs.lower_bound(kNodePrefix); entry != pairs.end() && entry->first.starts_with(kNodePrefix);
       ++entry) {
    const std::string id = entry->first.substr(kNodePrefix.size());
    if (id != self_.id) read_announcement(id, entry->second, pairs, now);
  }
}

void Coordinator::read_announcement(const std::string& id, const std::string& bytes,
                                    const std::map<std::string, std::string>& pairs, Clock::time_point now) {
  if (refusals_.contains(id)) return;
  const auto state = parse_node_state(bytes);
  if (!state.ok() || state->record.id != id) {
    refusals_[id] = fmt::format("node {} cannot take part: {}", printable(id),
                                state.ok() ? "it announced itself under another id" : state.status().message());
  } else if (const auto refusal = refuse_config(job_state_.job, job_state_.coordinator, state->job, state->record)) {
    refusals_[id] = *refusal;
  } else {
    read_peer(id, *state, pairs, now);
  }
}

void Coordinator::read_peer(const std::string& id, const NodeState& state,
                            const std::map<std::string, std::string>& pairs, Clock::time_point now) {
  const auto beat = pairs.find(kBeatPrefix + id);
  const std::string beat_text = beat == pairs.end() ? "" : beat->second;
  const bool gone = pairs.contains(fmt::format("{}{}/{}", kGonePrefix, id, state.connection));
  auto [found, is_new] = peers_.try_emplace(id);
  Peer& peer = found->second;
  const bool is_other_connection = !is_new && peer.state.connection != state.connection;
  peer.state = state;
  if (is_new || is_other_connection || peer.beat != beat_text) {
    peer.beat = beat_text;
    peer.beaten_at = now;
  }
  const bool lived = peer.lives;
  peer.lives = !state.left && !gone && now - peer.beaten_at <= options_.silent_timeout;
  if (is_new || (peer.lives && !lived)) {
    std::erase(arrivals_, id);
    arrivals_.push_back(id);
    peer.arrived_at = now;
    last_arrival_ = now;
  }
}

// A claim of a node rank is refused once the other claimant has proved that it is alive; until then that one may be the
// process that this one replaces.
void Coordinator::refuse_claims() {
  std::vector<NodeRecord> earlier;
  for (const auto& id : arrivals_) {
    Peer& peer = peers_.at(id);
    peer.on_hold = false;
    if (!peer.lives) continue;
    const auto refusal = refuse_node_rank(job_state_.job, peer.state.record, earlier);
    if (!refusal) {
      earlier.push_back(peer.state.record);
      continue;
    }
    const auto holder = std::find_if(earlier.begin(), earlier.end(),
                                     [&](const auto& node) { return node.node_rank == peer.state.record.node_rank; });
    peer.on_hold = holder != earlier.end() && peers_.at(holder->id).beaten_at <= peer.arrived_at;
    if (!peer.on_hold) refusals_[id] = *refusal;
  }
  for (const auto& [id, reason] : refusals_) {
    peers_.erase(id);
    std::erase(arrivals_, id);
  }
}

void Coordinator::adopt_knowledge() {
  for (const auto& [id, peer] : peers_) {
    const NodeState& state = peer.state;
    job_state_.restarts = std::max(job_state_.restarts, state.restarts);
    job_state_.counted_round = std::max(job_state_.counted_round, state.counted_round);
    auto& counted = job_state_.counted[id];
    counted = std::max(counted, state.counted_asks);
    if (state.term > job_state_.term) {  // there was another coordinator meanwhile: a new quorum is needed
      job_state_.term = state.term;
      job_state_.official = false;
    }
    if (job_state_.over.empty() && !state.over.empty()) job_state_.over = state.over;
    adopt_round(state.known_round);
    if (state.established.number > job_state_.established.number) job_state_.established = state.established;
  }
}

void Coordinator::adopt_round(const RoundRecord& round) {
  if (round.number <= job_state_.round.number) return adopt_accepted(generation_of(round));
  const auto before =
      generation_of(std::exchange(job_state_.round, round));  // of another coordinator: a new quorum is needed
  job_state_.official = false;
  lost_.clear();
  adopt_accepted(before);  // it counts if the newer one is void
  std::erase_if(job_state_.others, [&](const auto& other) { return other.generation.id == round.id; });
}

// Another coordinator may have decided a round without knowing this one, or a newer round is void.
void Coordinator::adopt_accepted(const membership::Generation& accepted, bool may_hide_others) {
  const bool is_replaced = accepted.number <= generation_of(job_state_.established).number;
  if (is_replaced || (accepted.id == job_state_.round.id && !may_hide_others)) return;
  const auto known = std::ranges::find(job_state_.others, accepted.id,
                                       [](const membership::Attested& other) { return other.generation.id; });
  if (known == job_state_.others.end()) {
    job_state_.others.push_back({.generation = accepted, .may_hide_others = may_hide_others});
  } else {
    known->may_hide_others |= may_hide_others;
  }
}

// A node that has accepted a newer round than one that was never established cannot train in it any more.
void Coordinator::forget_others() {
  const auto established = generation_of(job_state_.established).number;
  const auto has_left = [&](const membership::Member& node) {
    const auto peer = peers_.find(node.id);
    return peer != peers_.end() && peer->second.state.accepted == job_state_.round.id;
  };
  std::erase_if(job_state_.others, [&](const membership::Attested& other) {
    if (other.generation.number <= established) return true;
    const bool is_older = other.generation.number <= job_state_.round.number;
    return is_older && !other.may_hide_others && std::ranges::any_of(other.generation.members, has_left);
  });
}

void Coordinator::establish() {
  const RoundRecord& round = job_state_.round;
  if (round.number <= job_state_.established.number || is_void()) return;
  const bool all_accepted = std::ranges::all_of(round.nodes, [&](const auto& node) {
    const auto peer = peers_.find(node.id);
    return peer != peers_.end() && peer->second.state.accepted == round.id;
  });
  if (all_accepted) job_state_.established = round;
}

bool Coordinator::is_void() const {
  const RoundRecord& round = job_state_.round;
  if (!is_forming()) return false;
  const bool has_rival = std::ranges::any_of(job_state_.others, [&](const membership::Attested& other) {
    return other.generation.number > round.number && other.generation.id != round.id;
  });
  const bool is_outdated = round.base_id != job_state_.established.id || has_rival;
  return is_outdated || std::ranges::any_of(round.nodes, [&](const auto& node) {
           return lost_.contains(node.id) || ended_.contains(node.id);
         });
}

std::vector<membership::Member> Coordinator::nodes_that_count() const {
  const auto last = generation_of(job_state_.round), established = generation_of(job_state_.established);
  std::vector<const membership::Generation*> rounds = {&last, &established};
  for (const auto& other : job_state_.others) rounds.push_back(&other.generation);
  if (witness_) {
    for (const auto* const vote : membership::votes_after(rounds, *witness_)) rounds.push_back(vote);
  }
  std::vector<membership::Member> nodes;
  for (const auto* const round : rounds) nodes.insert(nodes.end(), round->members.begin(), round->members.end());
  return nodes;
}

void Coordinator::ask_for_ends(Clock::time_point now, const FindEnd& find_end) {
  const auto nodes = nodes_that_count();
  const membership::Member* next = nullptr;
  const auto asked_at = [&](const membership::Member& node) {
    const auto found = asked_at_.find(node.id);
    return found == asked_at_.end() ? began_at_ - kAskInterval : found->second;
  };
  for (const auto& node : nodes) {
    if (lives(node.id) || ended_.contains(node.id)) continue;
    if (next == nullptr || asked_at(node) < asked_at(*next)) next = &node;
  }
  if (next == nullptr || now - asked_at(*next) < kAskInterval) return;
  asked_at_[next->id] = now;
  const auto end = find_end(*next);
  if (!end) return;
  ended_.insert(next->id);
  ended_with_[next->id] = end->newest();
  for (const auto& accepted : end->accepted) {
    const bool is_last = &accepted == &end->accepted.back();
    adopt_accepted(accepted, is_last && end->accepted.size() >= membership::Attestation::kGenerations);
  }
}

void Coordinator::notice_losses(Clock::time_point now) {
  const bool may_still_come = now - began_at_ <= options_.silent_timeout;
  for (const auto& node : job_state_.round.nodes) {
    const auto peer = peers_.find(node.id);
    const bool was_here = peer != peers_.end();
    if (was_here && peer->second.lives) {
      if (job_state_.job.elastic) lost_.erase(node.id);
      continue;
    }
    if (was_here && peer->second.state.left) {  // as good as an attestation: it says so itself, with all that it knows
      ended_.insert(node.id);
      const bool well = peer->second.state.finished && peer->second.state.round == job_state_.round.number;
      if (!well) lost_.insert(node.id);
      continue;
    }
    const bool finished =
        std::find(job_state_.finished.begin(), job_state_.finished.end(), node.id) != job_state_.finished.end();
    const bool given_up = was_here || ended_.contains(node.id) || !may_still_come;
    if (given_up && !(finished && ended_.contains(node.id))) lost_.insert(node.id);
  }
}

void Coordinator::count_restarts() {
  for (const auto& [id, peer] : peers_) {
    auto& counted = job_state_.counted[id];
    for (; counted < peer.state.restart_asks; ++counted) {
      // Several nodes report the same failure: without --elastic a round is restarted only once.
      if (!job_state_.job.elastic && job_state_.counted_round >= job_state_.round.number) continue;
      ++job_state_.restarts;
      job_state_.counted_round = job_state_.round.number;
    }
  }
}

void Coordinator::decide(Clock::time_point now) {
  MeetingView view{.job = job_state_.job,
                   .last = job_state_.round,
                   .established = job_state_.established,
                   .others = job_state_.others,
                   .is_void = is_void(),
                   .ended = ended_,
                   .ended_with = ended_with_,
                   .witness = witness_,
                   .fresh_id = random_hex(8),
                   .awaited = {},
                   .present = {},
                   .since_arrival = std::chrono::duration_cast<std::chrono::milliseconds>(now - last_arrival_),
                   .last_call_timeout = options_.last_call_timeout};
  for (const auto& id : arrivals_) {
    const Peer& peer = peers_.at(id);
    if (!peer.lives || peer.on_hold) continue;
    view.present.push_back({.node = peer.state.record, .wants_round = wants_next_round(peer.state)});
  }
  for (const auto& node : job_state_.round.nodes) {
    if (!lives(node.id) && !lost_.contains(node.id) && !ended_.contains(node.id)) view.awaited.insert(node.id);
  }
  const auto decision = decide_round(view);
  has_quorum_ = decision.has_quorum;
  waits_for_nodes_ = !decision.begins && std::ranges::any_of(view.present, &PresentNode::wants_round);
  job_state_.progress = decision.reason;
  if (has_quorum_ && !job_state_.official) {
    job_state_.official = true;
    ++job_state_.term;
  }
  if (job_state_.over.empty() && decision.begins) begin_round(decision);
}

void Coordinator::begin_round(const MeetingDecision& decision) {
  std::string master = self_.address;
  if (!job_state_.job.serve_store) {  // rank 0's host, not the store in which the nodes meet
    const NodeRecord& first = decision.nodes.front();
    const auto place = parse_host_port(first.address);
    master = to_string({.host = place.ok() ? place->host : first.host, .port = first.rank_port});
  }
  RoundRecord next{.number = decision.number,
                   .id = random_hex(8),
                   .master = std::move(master),
                   .nodes = decision.nodes,
                   .base = job_state_.established.number,
                   .base_id = job_state_.established.id,
                   .witness = decision.witness};
  const auto votes = [&](const std::string& name) { return vote_(name, generation_of(next)); };
  if (!std::ranges::all_of(decision.votes, votes)) {
    job_state_.progress = "the witness has not voted for the next round";
    return;
  }
  adopt_accepted(generation_of(std::exchange(job_state_.round, std::move(next))));
  log_info("round {} begins: {}", decision.number, decision.reason);
  if (!job_state_.job.elastic) job_state_.finished.clear();
  lost_.clear();
  asked_at_.clear();
}

void Coordinator::summarize() {
  job_state_.lost = to_vector(lost_);
  std::set<std::string> counted;
  for (const auto& node : nodes_that_count()) counted.insert(node.id);
  std::erase_if(ended_, [&](const std::string& id) { return !counted.contains(id); });
  std::erase_if(ended_with_, [&](const auto& end) { return !ended_.contains(end.first); });
  job_state_.ended = to_vector(ended_);
  job_state_.ended_with = ended_with_;
  std::set<std::string> finished(job_state_.finished.begin(), job_state_.finished.end());
  job_state_.waiting.clear();
  job_state_.failures.clear();
  for (const auto& id : arrivals_) {
    const NodeState& state = peers_.at(id).state;
    if (state.finished && (state.round == job_state_.round.number || job_state_.job.elastic)) {
      finished.insert(id);
    } else if (lives(id)) {
      finished.erase(id);
    }
    const bool is_out = !takes_part(id) || (lost_.contains(id) && wants_next_round(state));
    if (lives(id) && is_out) job_state_.waiting.push_back(state.record);
    for (const auto& failure : state.failures) {
      if (failure.round == job_state_.round.number || job_state_.job.elastic) job_state_.failures.push_back(failure);
    }
  }
  std::erase_if(finished, [&](const std::string& id) { return !takes_part(id); });
  job_state_.finished = to_vector(finished);
}

}  // namespace lockstep::launch
