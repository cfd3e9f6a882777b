#include "launch/meeting/node_decisions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/net/socket.h"
#include "membership/succession.h"

namespace lockstep::launch {
namespace {

std::string short_name(const NodeRecord& node) { return fmt::format("{} (pid {})", node.host, node.pid); }

const NodeRecord* find_node(std::span<const NodeRecord> nodes, const std::string& id) {
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const auto& node) { return node.id == id; });
  return found == nodes.end() ? nullptr : &*found;
}

const PresentNode* find_present(const MeetingView& view, const std::string& id) {
  const auto found =
      std::find_if(view.present.begin(), view.present.end(), [&](const auto& one) { return one.node.id == id; });
  return found == view.present.end() ? nullptr : &*found;
}

// The rounds of which the next one needs a quorum; owns what `bases` refers to.
struct Rounds {
  explicit Rounds(const MeetingView& view) : generations(view.others) {
    generations.push_back({.generation = generation_of(view.last)});
    generations.push_back({.generation = generation_of(view.established)});
    std::vector<const membership::Generation*> accepted;
    for (const auto& [one, may_hide_others] : generations) {
      if (may_hide_others || !membership::is_void(one, view.ended_with)) accepted.push_back(&one);
    }
    counted = membership::without_void_votes(view.witness, view.ended_with);
    witness = counted ? &*counted : nullptr;
    bases = membership::find_bases({&generations.back().generation}, accepted, witness);
    // A node accepts one round of each number, also if that round is void.
    next_number = bases.next_number();
    for (const auto& one : generations) next_number = std::max(next_number, one.generation.number + 1);
    if (!view.witness) return;
    for (const auto& [name, vote] : view.witness->votes) next_number = std::max(next_number, vote.number + 1);
  }
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;

  std::vector<membership::Attested> generations;
  std::optional<membership::WitnessView> counted;
  const membership::WitnessView* witness = nullptr;  // `counted`, if there is one
  membership::Bases bases;
  std::int64_t next_number = 0;
};

// Present nodes that may take part: those of the last round in its order, then the others in order of arrival; at most
// max_nodes. `with_running`: also those that do not ask for a round.
std::vector<NodeRecord> candidates(const MeetingView& view, bool with_running) {
  std::vector<NodeRecord> nodes;
  const auto limit = static_cast<std::size_t>(view.job.max_nodes);
  for (const auto& node : view.last.nodes) {
    const auto* one = find_present(view, node.id);
    if (one != nullptr && (with_running || one->wants_round)) nodes.push_back(one->node);
  }
  for (const auto& one : view.present) {
    if (nodes.size() >= limit) break;
    // A running node of an elastic job that is not in the last round was left out of it while it could not be reached.
    if ((one.wants_round || with_running) && find_node(view.last.nodes, one.node.id) == nullptr) {
      nodes.push_back(one.node);
    }
  }
  return nodes;
}

bool same_nodes(const std::vector<NodeRecord>& a, const std::vector<NodeRecord>& b) {
  return a.size() == b.size() &&
         std::all_of(a.begin(), a.end(), [&](const auto& node) { return find_node(b, node.id) != nullptr; });
}

MeetingDecision begin(std::vector<NodeRecord> nodes, std::string reason) {
  return {.begins = true, .has_quorum = true, .nodes = order_nodes(std::move(nodes)), .reason = std::move(reason)};
}
MeetingDecision wait(std::string reason) { return {.has_quorum = true, .nodes = {}, .reason = std::move(reason)}; }

// An elastic job in which ranks of some node are running: nodes join and leave, and no node stops its ranks.
MeetingDecision decide_running(const MeetingView& view) {
  const auto nodes = candidates(view, true);
  const bool is_same = same_nodes(nodes, view.last.nodes) && !view.is_void;
  if (!view.awaited.empty() || is_same) return wait("the job is running");
  return begin(nodes, fmt::format("{} nodes continue: {}", nodes.size(), describe(nodes)));
}

MeetingDecision decide_gathered(const MeetingView& view) {
  const auto nodes = candidates(view, false);
  const auto count = static_cast<int>(nodes.size());
  const std::string who =
      fmt::format("{} of {} nodes have arrived: {}", count, describe_node_count(view.job), describe(nodes));
  if (count < view.job.min_nodes) return wait(who);
  if (count >= view.job.max_nodes) return begin(nodes, who);
  const bool all_back =
      view.last.number >= 0 && std::all_of(view.last.nodes.begin(), view.last.nodes.end(),
                                           [&](const auto& node) { return find_node(nodes, node.id) != nullptr; });
  if (all_back) return begin(nodes, who + "; no node of the last round is missing");
  if (view.since_arrival >= view.last_call_timeout)
    return begin(nodes, who + "; no further node arrived within --last-call");
  return wait(who + "; enough to begin, others may still arrive");
}

}  // namespace

membership::Member member_of(const NodeRecord& node) {
  return {.id = node.id,
          .host = node.host,
          .pid = node.pid,
          .started = node.started,
          .store_address = node.address,
          .attester = node.attester};
}

membership::Generation generation_of(const RoundRecord& round) {
  membership::Generation generation{.number = round.number + 1, .id = round.id};
  for (const auto& node : round.nodes) generation.members.push_back(member_of(node));
  generation.witness = round.witness;
  return generation;
}

std::string describe(const NodeRecord& node) { return "node " + short_name(node); }

std::string describe(std::span<const NodeRecord> nodes) {
  if (nodes.empty()) return "none";
  std::vector<std::string> names;
  for (const auto& node : nodes) names.push_back(short_name(node));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string describe_node_count(const JobConfig& job) {
  return job.min_nodes == job.max_nodes ? fmt::format("{}", job.min_nodes)
                                        : fmt::format("{}:{}", job.min_nodes, job.max_nodes);
}

std::optional<std::string> refuse_config(const JobConfig& job, const NodeRecord& coordinator, const JobConfig& theirs,
                                         const NodeRecord& node) {
  const auto differs = [&](const char* option, const auto& mine, const auto& other) {
    return fmt::format(
        "{} was started with {} {}, but {}, the coordinator, with {} {}; start all nodes of a job with the same "
        "options",
        describe(node), option, other, describe(coordinator), option, mine);
  };
  const auto quoted = [](const std::string& text) { return fmt::format("'{}'", text); };
  if (job.run_id != theirs.run_id) return differs("--rdzv-id", quoted(job.run_id), quoted(theirs.run_id));
  if (job.min_nodes != theirs.min_nodes || job.max_nodes != theirs.max_nodes) {
    return differs("--nnodes", describe_node_count(job), describe_node_count(theirs));
  }
  if (job.elastic != theirs.elastic) return differs("--elastic", job.elastic, theirs.elastic);
  if (job.max_restarts != theirs.max_restarts) return differs("--max-restarts", job.max_restarts, theirs.max_restarts);
  if (job.serve_store != theirs.serve_store) return differs("--serve-store", job.serve_store, theirs.serve_store);
  return std::nullopt;
}

std::optional<std::string> refuse_node_rank(const JobConfig& job, const NodeRecord& node,
                                            std::span<const NodeRecord> others) {
  if (!node.node_rank) return std::nullopt;
  if (*node.node_rank >= job.max_nodes) {
    return fmt::format("{} was started with --node-rank {}, but --nnodes is {}; expected a node rank from 0 to {}",
                       describe(node), *node.node_rank, describe_node_count(job), job.max_nodes - 1);
  }
  for (const auto& other : others) {
    if (other.id == node.id || other.node_rank != node.node_rank) continue;
    return fmt::format(
        "--node-rank {} is claimed twice: by {} with {} ranks, and by {} with {} ranks; give each node a different "
        "one, or "
        "omit it on all nodes",
        *node.node_rank, describe(other), other.nproc, describe(node), node.nproc);
  }
  return std::nullopt;
}

namespace {

MeetingDecision decide_with_quorum(const MeetingView& view) {
  std::vector<NodeRecord> busy;
  for (const auto& node : view.last.nodes) {
    const auto* one = find_present(view, node.id);
    if (one != nullptr && !one->wants_round) busy.push_back(node);
  }
  if (view.job.elastic && !busy.empty()) return decide_running(view);
  if (!busy.empty()) return wait(fmt::format("the ranks of {} have not stopped yet", describe(busy)));
  if (!view.awaited.empty()) {
    std::vector<NodeRecord> missing;
    for (const auto& node : view.last.nodes) {
      if (view.awaited.contains(node.id)) missing.push_back(node);
    }
    return wait(fmt::format("of the last round, {} may still return", describe(missing)));
  }
  return decide_gathered(view);
}

}  // namespace

MeetingDecision decide_round(const MeetingView& view) {
  const Rounds rounds(view);
  const auto check = [&](const std::set<std::string>& ids) {
    return membership::check_quorums(rounds.bases, view.ended, ids, rounds.witness);
  };
  const auto refuse = [](const membership::QuorumCheck& failed) {
    return MeetingDecision{.nodes = {},
                           .reason = fmt::format("of the {} nodes of round {}, {}", failed.missing->members.size(),
                                                 failed.missing->number - 1, failed.reason)};
  };
  std::set<std::string> present, chosen;
  for (const auto& one : view.present) present.insert(one.node.id);
  if (const auto checked = check(present); checked.missing != nullptr) return refuse(checked);
  MeetingDecision decision = decide_with_quorum(view);
  if (!decision.begins) return decision;
  // Nodes of an earlier round may be present, but have no place in the next one.
  for (const auto& node : decision.nodes) chosen.insert(node.id);
  auto checked = check(chosen);
  if (checked.missing != nullptr) return refuse(checked);
  decision.number = static_cast<int>(rounds.next_number) - 1;
  decision.witness = membership::next_register(rounds.bases, rounds.witness, view.fresh_id);
  decision.votes = std::move(checked.votes);
  return decision;
}

std::vector<NodeRecord> order_nodes(std::vector<NodeRecord> nodes) {
  std::vector<std::optional<NodeRecord>> slots(nodes.size());
  std::vector<NodeRecord> rest;
  for (auto& node : nodes) {
    const auto wanted = static_cast<std::size_t>(node.node_rank.value_or(-1));
    if (node.node_rank && wanted < slots.size() && !slots[wanted]) {
      slots[wanted] = std::move(node);
    } else {
      rest.push_back(std::move(node));
    }
  }
  auto next = rest.begin();
  std::vector<NodeRecord> ordered;
  for (auto& slot : slots) ordered.push_back(slot ? *std::move(slot) : std::move(*next++));
  return ordered;
}

std::optional<Round> round_of(const std::string& id, int number, int restarts, const std::string& master,
                              std::span<const NodeRecord> nodes) {
  const auto* self = find_node(nodes, id);
  if (self == nullptr) return std::nullopt;
  Round round;
  round.number = number;
  round.restarts = restarts;
  round.node_rank = static_cast<int>(self - nodes.data());
  for (const auto& node : nodes) {
    if (&node < self) round.first_rank += node.nproc;
    round.world_size += node.nproc;
  }
  HostPort place = parse_host_port(master).value();  // the record was checked when it was read
  round.master_addr = std::move(place.host);
  round.master_port = place.port;
  round.nodes.assign(nodes.begin(), nodes.end());
  return round;
}

namespace {

// Candidates with different established rounds search different lists of nodes: each may be the first living node of
// its own list. The one with the older list leaves it; once it has learned the newer round, both have the same list.
std::optional<std::size_t> find_better_informed(std::span<const Place> places) {
  int established = -1;
  for (const Place& place : places) {
    if (place.is_self) established = place.established;
  }
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    const bool is_candidate = place.kind == Place::Kind::candidate || place.kind == Place::Kind::meeting;
    if (place.is_self || !is_candidate || place.established <= established) continue;
    established = place.established;
    best = i;
  }
  return best;
}

}  // namespace

PlaceChoice choose_place(std::span<const Place> places, int known_term, std::chrono::milliseconds silent_timeout) {
  using Kind = Place::Kind;
  std::optional<std::size_t> newest;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool counts = places[i].kind == Kind::meeting && places[i].term >= known_term;
    if (counts && (!newest || places[i].term > places[*newest].term)) newest = i;
  }
  if (newest && places[*newest].is_self) return {PlaceChoice::Kind::coordinate, *newest, "this is the coordinator"};
  if (newest) return {PlaceChoice::Kind::join, *newest, "the coordinator is there"};
  if (const auto better = find_better_informed(places)) {
    return {PlaceChoice::Kind::join, *better, "a candidate there knows a newer established round"};
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    if (place.is_self) return {PlaceChoice::Kind::coordinate, i, "this is the first living node"};
    // An outdated coordinator is no more than a candidate: it learns the newer state from the nodes that join it.
    if (place.kind == Kind::candidate || place.kind == Kind::meeting) {
      return {PlaceChoice::Kind::join, i, "the first living node is there"};
    }
    if (place.kind == Kind::standby) {
      return {PlaceChoice::Kind::wait, i, "an earlier node is alive and has to become the coordinator"};
    }
    if (place.kind == Kind::silent && place.silent_for < silent_timeout) {
      return {PlaceChoice::Kind::wait, i, "an earlier node may still answer"};
    }
  }
  return {PlaceChoice::Kind::wait, 0, "there is no coordinator"};
}

std::optional<std::string> warn_of_single_node(int max_nodes, bool endpoint_is_elsewhere, const std::string& endpoint,
                                               int slurm_nodes) {
  if (max_nodes > 1) return std::nullopt;
  if (endpoint_is_elsewhere) {
    return fmt::format(
        "--rdzv-endpoint {} is another host, but --nnodes is 1: this node trains alone. Did you mean --nnodes 2 or "
        "more?",
        endpoint);
  }
  if (slurm_nodes > 1) {
    return fmt::format(
        "Slurm gave {} hosts to this job, but --nnodes is 1: this node trains alone. Did you mean --nnodes {}?",
        slurm_nodes, slurm_nodes);
  }
  return std::nullopt;
}

}  // namespace lockstep::launch
