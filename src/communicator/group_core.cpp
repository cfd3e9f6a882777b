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

// Ranks of a host watch each other in the arena (HostWatch); their links need no heartbeats.
std::vector<ControlLink> control_links(Mesh& mesh) {
  std::vector<ControlLink> links;
  for (int rank = 0; rank < mesh.topology.size(); ++rank) {
    auto& socket = mesh.control[static_cast<std::size_t>(rank)];
    if (socket.valid()) links.push_back({rank, std::move(socket), !mesh.topology.same_host(rank)});
  }
  return links;
}

std::vector<int> linked_hosts(const Topology& topology) {
  std::vector<int> ranks;
  if (topology.size() == 1) return ranks;
  for (const int rank : control_peers(topology)) {
    if (!topology.same_host(rank)) ranks.push_back(rank);
  }
  return ranks;
}

record::OperationRecord record_of(const CollectiveCall& call, Algorithm algorithm, std::uint64_t issued) {
  return {.sequence = call.descriptor.sequence,
          .kind = static_cast<std::uint8_t>(call.descriptor.kind),
          .algorithm = static_cast<std::uint8_t>(algorithm),
          .root = call.descriptor.root,
          .issued = issued,
          .bytes = call.count() * call.element_bytes(),
          .label = call.descriptor.digest};
}

std::unique_ptr<StreamTransport> make_streams(const Mesh& mesh) {
  if (mesh.topology.single_host()) return nullptr;
  return std::make_unique<StreamTransport>(mesh.topology.rank, mesh.topology.size(), mesh.links);
}

}  // namespace

GroupCore::GroupCore(Mesh mesh, const CommunicatorOptions& options, Selector selector)
    : topology_(mesh.topology),
      group_id_(mesh.group_id),
      options_(options),
      selector_(std::move(selector)),
      host_(std::move(mesh.host)),
      streams_(make_streams(mesh)),
      links_(mesh.links),
      log_(options_.name, group_id_, topology_.rank, topology_.size()),
      progress_(topology_, host_->arena()),
      regions_(topology_, *host_,
               [this](int rank, const ControlMessage& message, Attachment attachment) {
                 send_on_host(rank, message, std::move(attachment));
               }),
      watch_(topology_, host_->arena(), options_.peer_timeout, watch_interval(options_.peer_timeout),
             options_.init_timeout),
      spread_(topology_, progress_, linked_hosts(topology_)) {
  host_->set_region_request([this](int local, std::uint32_t id) { regions_.request(local, id); });
  // The last step: from here on the control thread calls back.
  control_ = std::make_unique<ControlPlane>(control_links(mesh), options_.peer_timeout, options_.init_timeout, *this);
  throw_if_error(control_->start());
}

GroupCore::~GroupCore() { leave(); }

std::string GroupCore::describe_group() const { return fmt::format("group '{}'", options_.name); }

std::string GroupCore::describe_rank(int rank) const { return topology_.member(rank).describe(); }

void GroupCore::set_failure_listener(std::function<void()> listener) {
  const std::lock_guard lock(mutex_);
  on_failure_ = std::move(listener);
}

Status GroupCore::run_collective(const CollectiveCall& call, OperationTimer timer, std::uint64_t issued) {
  Status status = failure_.failed() ? failure_.reason() : Status();
  if (status.ok()) {
    const Algorithm algorithm = selector_.choose(call);
    log_.begin(record_of(call, algorithm, issued));
    {
      OpScope scope(*this, call.descriptor, timer);
      CollectiveContext context{topology_, *host_, streams_.get(), scope};
      host_->enter();
      status = run_algorithm(algorithm, call, context);
      host_->leave();
    }
    // The timer starts at the latest when a wait has spun for 50 us.
    log_.end(status.ok(), timer.has_started() || host_->oversubscribed());
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
  if (failure_.failed()) return;
  // The first reason on this host counts, so that its ranks report the same.
  const Status first = host_->arena().record_failure(reason);
  if (!failure_.set(first)) return;
  record::Recorder::process().set_failure(describe_group() + ": " + first.message());
  control_->broadcast(Abort{first});
  log_debug("{} is dead: {}", describe_group(), first.message());
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
  announce_leave();
  control_->flush_and_stop(Deadline::after(kGoodbyeFlush));
}

void GroupCore::announce_leave() {
  progress_.set_left();
  host_->ring_bell();  // ranks that wait for this one check again
  tell_other_hosts(ToTell::everything);
}

Status GroupCore::exchange_progress(const OpDescriptor& op, bool tell_peers) {
  if (tell_peers) {
    progress_.set_waiting(op);
    tell_other_hosts(ToTell::changes);
  }
  return progress_.compare(op);
}

void GroupCore::stop_waiting() { progress_.set_waiting(std::nullopt); }

void GroupCore::adopt_failure_of_host() {
  if (failure_.failed()) return;
  if (const auto reason = host_->arena().failure()) fail(*reason);
}

void GroupCore::tell_other_hosts(ToTell what) {
  if (topology_.single_host()) return;
  if (!topology_.leads_host()) return control_->send(topology_.host_leader(), ProgressChanged{});
  ToTell before = to_tell_.load();
  while (before < what && !to_tell_.compare_exchange_weak(before, what)) {
  }
  control_->wake();
}

void GroupCore::spread_progress(Deadline::Clock::time_point now, ToTell what) {
  if (what != ToTell::nothing) spread_.collect_local(what == ToTell::everything);
  // While ranks wait, others should also know which ones have completed the operation.
  if (now >= next_report_) {
    next_report_ = now + watch_interval(options_.peer_timeout);
    if (progress_.any_waits()) spread_.collect_local(true);
  }
  if (now < spread_.due() && what != ToTell::everything) return;
  spread_.flush(now, [this](int rank, const ProgressReport& report) { control_->send(rank, report); });
}

Deadline::Clock::time_point GroupCore::on_control_turn(Deadline::Clock::time_point now) {
  adopt_failure_of_host();
  const auto next =
      watch_.turn(now, [this](int rank, Deadline::Duration silence) { on_control_silent(rank, silence); });
  if (topology_.single_host() || !topology_.leads_host()) return next;
  spread_progress(now, to_tell_.exchange(ToTell::nothing));
  return std::min(next, spread_.due());
}

void GroupCore::send_on_host(int rank, const ControlMessage& message, Attachment attachment) {
  control_->send(topology_.leads_host() ? rank : topology_.host_leader(), message, std::move(attachment));
}

// True if the message is for another rank of this host, to which it was sent.
template <typename Message>
bool GroupCore::passed_on(const Message& message, UniqueFd& fd) {
  if (message.to == topology_.rank) return false;
  const bool attached = fd.valid();
  auto held = std::make_shared<UniqueFd>(std::move(fd));
  control_->send(message.to, message, attached ? Attachment{held->get(), held} : Attachment{});
  return true;
}

void GroupCore::on_control_message(int rank, ControlMessage message, UniqueFd fd) {
  if (const auto* abort = std::get_if<Abort>(&message)) {
    fail(abort->reason);  // which passes it on
  } else if (const auto* report = std::get_if<ProgressReport>(&message)) {
    for (const RankReport& each : report->ranks) {
      if (!progress_.learn(each)) continue;
      spread_.add(each.rank, rank);
      if (each.left) host_->ring_bell();  // ranks that wait for this one check again
    }
  } else if (std::holds_alternative<ProgressChanged>(message)) {
    tell_other_hosts(ToTell::changes);
  } else if (const auto* request = std::get_if<RegionRequest>(&message)) {
    if (!passed_on(*request, fd)) regions_.on_request(*request);
  } else if (const auto* grant = std::get_if<RegionGrant>(&message)) {
    if (passed_on(*grant, fd)) return;
    if (const Status mapped = regions_.on_grant(*grant, std::move(fd)); !mapped.ok()) fail(mapped);
  } else if (const auto* dropped = std::get_if<RegionDropped>(&message)) {
    if (!passed_on(*dropped, fd)) regions_.on_dropped(*dropped);
  }
}

void GroupCore::on_control_closed(int rank, const std::string& how) {
  const auto& member = topology_.member(rank);
  progress_.set_gone(rank);
  if (progress_.has_left(rank)) return tell_other_hosts(ToTell::changes);
  fail(Status(
      StatusCode::peer_lost,
      fmt::format("{} was lost: {} without a goodbye{}; see that rank's output for the reason", member.describe(), how,
                  topology_.same_host(rank) ? ", and " + process_state(member.pid) : "")));
}

void GroupCore::on_control_silent(int rank, Deadline::Duration silence) {
  progress_.set_gone(rank);
  // A rank that has not been heard yet has the time for forming.
  const auto limit =
      silence < options_.init_timeout ? options_.peer_timeout : std::max(options_.peer_timeout, options_.init_timeout);
  fail(Status(
      StatusCode::peer_lost,
      fmt::format("{} was lost: nothing heard from it for {:.1f} s (limit {:.1f} s); its process is stopped, its "
                  "host is down or overloaded, or the network connection to it is down",
                  describe_rank(rank), seconds(silence), seconds(limit))));
}

}  // namespace lockstep
