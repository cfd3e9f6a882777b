#include "launch/meeting/node_view.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::launch {
namespace {

using EventKind = MeetingEvent::Kind;

const NodeRecord* find_node(const std::vector<NodeRecord>& nodes, const std::string& id) {
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const auto& node) { return node.id == id; });
  return found == nodes.end() ? nullptr : &*found;
}

bool contains(const std::vector<std::string>& ids, const std::string& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

NodeView::NodeView(NodeRecord self, const JobConfig& job) {
  mine_.record = std::move(self);
  mine_.job = job;
  known_.job = job;
}

void NodeView::ask_for_round() {
  mine_.wants_round = true;
  ++version_;
}

void NodeView::give_up_round() {
  mine_.wants_round = false;
  ++version_;
}

std::optional<Round> NodeView::enter_round() {
  const bool is_established = known_.round.id == known_.established.id;
  if (!mine_.wants_round || known_.round.number <= mine_.round || !is_established) return std::nullopt;
  auto round = round_of(mine_.record.id, known_.round.number, known_.restarts, known_.round.master, known_.round.nodes);
  if (!round) return std::nullopt;
  mine_.round = known_.round.number;
  mine_.wants_round = false;
  mine_.finished = false;
  mine_.failures.clear();
  events_.clear();
  reported_.clear();
  find_losses(known_.round);  // since it was decided
  ++version_;
  return round;
}

void NodeView::add_failure(const RankFailure& failure) {
  mine_.failures.push_back({.round = mine_.round, .node = mine_.record.id, .failure = failure});
  ++version_;
}

void NodeView::set_finished() {
  mine_.finished = true;
  ++version_;
}

void NodeView::set_over(const std::string& reason) {
  if (mine_.over.empty()) mine_.over = reason.empty() ? "the job was ended without a reason" : reason;
  ++version_;
}

void NodeView::set_left() {
  mine_.left = true;
  mine_.wants_round = false;
  ++version_;
}

std::uint64_t NodeView::ask_restart() {
  ++version_;
  return ++mine_.restart_asks;
}

std::optional<int> NodeView::restarts_counted(std::uint64_t ask) const {
  const auto counted = known_.counted.find(mine_.record.id);
  if (counted == known_.counted.end() || counted->second < ask) return std::nullopt;
  return known_.restarts;
}

std::optional<MeetingEvent> NodeView::take_event() {
  if (events_.empty()) return std::nullopt;
  MeetingEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

bool NodeView::offer_roster(const std::string& roster) {
  const auto number = roster_number(roster);
  if (number <= roster_number_) return false;
  roster_ = roster;
  roster_number_ = number;
  ++version_;
  return true;
}

bool NodeView::takes_part() const { return mine_.round >= 0 && !mine_.wants_round && !mine_.left; }

bool NodeView::accepts(const RoundRecord& round) const {
  if (round.id == known_.round.id) return true;
  const bool knows_established = round.base == known_.established.number ? round.base_id == known_.established.id
                                                                         : round.base > known_.established.number;
  return round.number > known_.round.number && knows_established;
}

bool NodeView::needs_roster_entry(const JobState& state) const {
  const bool is_here = find_node(state.round.nodes, mine_.record.id) != nullptr;
  return is_here && state.term >= known_.term && state.round.id != known_.round.id && accepts(state.round);
}

void NodeView::apply(const JobState& state) {
  if (state.term < known_.term) return;
  if (!accepts(state.round)) {
    ++version_;
    // It is true, and it is where to search for the others: the rounds that this node has accepted may be abandoned.
    if (state.established.number > known_.established.number) known_.established = state.established;
    return;
  }
  const RoundRecord before = known_.round;
  const bool same_round = before.id == state.round.id;
  const std::uint64_t published_before = version_;
  if (known_.term != state.term || !same_round || known_.restarts != state.restarts) ++version_;
  RoundRecord established =
      known_.established.number > state.established.number ? known_.established : state.established;
  known_ = state;
  known_.established = std::move(established);
  if (!takes_part()) return;
  if (known_.job.elastic && find_node(known_.round.nodes, mine_.record.id) != nullptr &&
      mine_.round != known_.round.number) {
    mine_.round = known_.round.number;  // other nodes join and leave; this node's ranks continue
    if (version_ == published_before) ++version_;
  }
  find_failures();
  find_losses(before);
  find_others(before);
}

void NodeView::add_event(EventKind kind, const NodeRecord& node) {
  if (!reported_.insert(fmt::format("{}/{}", static_cast<int>(kind), node.id)).second) return;
  MeetingEvent event;
  event.kind = kind;
  event.node = node;
  events_.push_back(std::move(event));
}

void NodeView::find_failures() {
  for (const auto& item : known_.failures) {
    if (item.node == mine_.record.id) continue;
    if (item.round != mine_.round && !known_.job.elastic) continue;
    const auto& failure = item.failure;
    if (!reported_.insert(fmt::format("{}/{}/{}/{}", item.node, failure.rank, failure.pid, failure.time_ns)).second) {
      continue;
    }
    MeetingEvent event;
    event.kind = EventKind::rank_failed;
    event.failure = failure;
    if (const auto* node = find_node(known_.round.nodes, item.node)) event.node = *node;
    events_.push_back(std::move(event));
  }
}

void NodeView::find_losses(const RoundRecord& before) {
  for (const auto& node : known_.round.nodes) {
    if (contains(known_.lost, node.id)) add_event(EventKind::node_lost, node);
    // It rejoined an elastic job, and may be lost again.
    if (known_.job.elastic && !contains(known_.lost, node.id)) {
      reported_.erase(fmt::format("{}/{}", static_cast<int>(EventKind::node_lost), node.id));
    }
  }
  const bool continues_without_us = mine_.round != known_.round.number;
  if (continues_without_us) add_event(EventKind::node_lost, mine_.record);
  if (!known_.job.elastic) return;
  for (const auto& node : before.nodes) {
    if (find_node(known_.round.nodes, node.id) == nullptr) add_event(EventKind::node_lost, node);
  }
}

void NodeView::find_others(const RoundRecord& before) {
  for (const auto& node : known_.waiting) {
    if (node.id != mine_.record.id) add_event(EventKind::node_waiting, node);
  }
  if (known_.job.elastic && before.number >= 0) {
    for (const auto& node : known_.round.nodes) {
      if (find_node(before.nodes, node.id) == nullptr) add_event(EventKind::node_waiting, node);
    }
  }
  for (const auto& node : known_.round.nodes) {
    if (node.id != mine_.record.id && contains(known_.finished, node.id)) add_event(EventKind::node_finished, node);
  }
}

void NodeView::set_address(const std::string& address) {
  mine_.record.address = address;
  ++version_;
}

NodeState NodeView::announcement(std::uint64_t connection, const std::string& coordinator_round,
                                 const std::string& coordinator_established) const {
  NodeState state = mine_;
  state.connection = connection;
  state.term = known_.term;
  state.restarts = known_.restarts;
  state.counted_round = known_.counted_round;
  const auto counted = known_.counted.find(mine_.record.id);
  state.counted_asks = counted == known_.counted.end() ? 0 : counted->second;
  state.roster_number = roster_number_;
  state.accepted = known_.round.id;
  if (known_.round.id != coordinator_round) state.known_round = known_.round;
  if (known_.established.id != coordinator_established) state.established = known_.established;
  return state;
}

}  // namespace lockstep::launch
