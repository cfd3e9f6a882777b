#include "communicator/group_core.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/process_state.h"
#include "base/seconds.h"
#include "collectives/run_algorithm.h"
#include "communicator/op_scope.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kGoodbyeFlush{500};
// How long a failed operation waits for other ranks to leave it: at most they are in a reduction, which
// takes some ten milliseconds.
constexpr std::chrono::milliseconds kWithdrawal{300};

RankVector<UniqueFd> take_links(Mesh& mesh, UniqueFd PeerLinks::*which) {
  RankVector<UniqueFd> links;
  for (auto& peer : mesh.links) links.push_back(std::move(peer.*which));
  return links;
}

std::unique_ptr<StreamTransport> make_streams(Mesh& mesh) {
  if (mesh.topology.single_host()) return nullptr;
  std::vector<std::vector<UniqueFd>> connections;
  for (auto& peer : mesh.links) connections.push_back(std::move(peer.data));
  return std::make_unique<StreamTransport>(mesh.topology.rank, std::move(connections));
}

}  // namespace

GroupCore::GroupCore(Mesh mesh, const CommunicatorOptions& options, Selector selector)
    : topology_(mesh.topology),
      group_id_(mesh.group_id),
      options_(options),
      selector_(std::move(selector)),
      host_(std::move(mesh.host)),
      streams_(make_streams(mesh)),
      message_links_(take_links(mesh, &PeerLinks::messages)),
      progress_(topology_) {
  // The last step: from here on the control thread calls back.
  control_ = std::make_unique<ControlPlane>(take_links(mesh, &PeerLinks::control), options_.peer_timeout, *this);
  control_->start();
}

GroupCore::~GroupCore() { leave(); }

std::string GroupCore::describe_group() const { return fmt::format("group '{}'", options_.name); }

std::string GroupCore::describe_rank(int rank) const { return topology_.member(rank).describe(); }

void GroupCore::set_failure_listener(std::function<void()> listener) {
  const std::lock_guard lock(mutex_);
  on_failure_ = std::move(listener);
}

Status GroupCore::run_collective(const CollectiveCall& call, OperationTimer timer) {
  Status status = failure_.failed() ? failure_.reason() : Status();
  if (status.ok()) {
    OpScope scope(*this, call.descriptor, timer);
    CollectiveContext context{topology_, *host_, streams_.get(), scope};
    host_->enter();
    status = run_algorithm(selector_, call, context);
    host_->leave();
  }
  if (status.ok()) {
    progress_.set_completed(call.descriptor);
    return status;
  }
  fail(progress_.with_history(status));
  withdraw_from_host();
  return failure_of(describe(call.descriptor), timer.elapsed());
}

void GroupCore::withdraw_from_host() {
  const auto is_gone = [this](int rank) { return progress_.is_gone(rank); };
  if (host_->withdraw(is_gone, Deadline::after(kWithdrawal))) return;
  log_warn(
      "{} has failed, but a rank of this host has not yet left its last operation; it may still write to buffers in "
      "registered memory for a moment",
      describe_group());
}

void GroupCore::fail(const Status& reason) {
  if (!failure_.set(reason)) return;
  control_->broadcast(Abort{reason});
  log_debug("{} is dead: {}", describe_group(), reason.message());
  host_->ring_bell();
  std::function<void()> listener;
  {
    const std::lock_guard lock(mutex_);
    listener = on_failure_;
  }
  if (listener) listener();
}

Status GroupCore::failure_of(const std::string& operation, Deadline::Duration elapsed) const {
  const Status reason = failure_.reason();
  return Status(reason.code(), fmt::format("{} of {} failed on rank {} after {:.3f} s: {}", operation, describe_group(),
                                           topology_.rank, seconds(elapsed), reason.message()));
}

void GroupCore::leave() {
  if (left_.exchange(true)) return;
  // A peer that sees us leave must first learn why the group has failed, or it would blame us.
  if (failure_.failed()) control_->broadcast(Abort{failure_.reason()});
  control_->broadcast(progress_.goodbye());
  control_->flush_and_stop(Deadline::after(kGoodbyeFlush));
}

Status GroupCore::exchange_progress(const OpDescriptor& op, bool tell_peers) {
  if (tell_peers) {
    progress_.set_waiting(op);
    control_->broadcast(progress_.heartbeat());
  }
  return progress_.compare(op);
}

void GroupCore::stop_waiting() { progress_.set_waiting(std::nullopt); }

std::uint32_t GroupCore::publish_region(std::shared_ptr<const SharedMemory> memory) {
  const std::uint32_t id = host_->add_own_region({memory->data(), memory->size(), memory});
  for (const int rank : topology_.local_ranks()) {
    if (rank != topology_.rank) control_->send(rank, RegionAdded{id, memory->size()}, memory);
  }
  return id;
}

void GroupCore::withdraw_region(std::uint32_t region) {
  host_->drop_own_region(region);
  for (const int rank : topology_.local_ranks()) {
    if (rank != topology_.rank) control_->send(rank, RegionDropped{region});
  }
}

void GroupCore::map_peer_region(int rank, const RegionAdded& added, UniqueFd fd) {
  auto memory = SharedMemory::map(std::move(fd), added.bytes);
  if (!memory.ok()) return fail(memory.status().with_context("registered memory of " + describe_rank(rank)));
  (*memory)->close_fd();
  std::shared_ptr<SharedMemory> shared = std::move(*memory);
  const int local = topology_.member(rank).local_index;
  host_->add_peer_region(local, added.id, {shared->data(), shared->size(), shared});
}

void GroupCore::on_control_message(int rank, ControlMessage message, UniqueFd fd) {
  if (const auto* heartbeat = std::get_if<Heartbeat>(&message)) {
    progress_.on_heartbeat(rank, *heartbeat);
  } else if (const auto* abort = std::get_if<Abort>(&message)) {
    // Forwarded, although the sender has sent it to the others as well: they may see our connection
    // end before they read that.
    fail(abort->reason);
  } else if (const auto* goodbye = std::get_if<Goodbye>(&message)) {
    progress_.on_goodbye(rank, *goodbye);
    host_->ring_bell();  // ranks that wait for this one check again
  } else if (const auto* added = std::get_if<RegionAdded>(&message)) {
    map_peer_region(rank, *added, std::move(fd));
  } else if (const auto* dropped = std::get_if<RegionDropped>(&message)) {
    host_->drop_peer_region(topology_.member(rank).local_index, dropped->id);
  }
}

void GroupCore::on_control_closed(int rank, const std::string& how) {
  const auto& member = topology_.member(rank);
  progress_.set_gone(rank);
  if (progress_.has_left(rank)) return;
  const bool same_host = member.host_index == topology_.me().host_index;
  fail(Status(StatusCode::peer_lost,
              fmt::format("{} was lost: {} without a goodbye{}; see that rank's output for the reason",
                          member.describe(), how, same_host ? ", and " + process_state(member.pid) : "")));
}

void GroupCore::on_control_silent(int rank, Deadline::Duration silence) {
  progress_.set_gone(rank);
  fail(Status(
      StatusCode::peer_lost,
      fmt::format("{} was lost: nothing heard from it for {:.1f} s (limit {:.1f} s); its process is stopped, its "
                  "host is down or overloaded, or the network connection to it is down",
                  describe_rank(rank), seconds(silence), seconds(options_.peer_timeout))));
}

Heartbeat GroupCore::current_heartbeat() { return progress_.heartbeat(); }

}  // namespace lockstep
