#include "transport/shm/shm_host.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "base/net/fd_passing.h"
#include "base/net/socket.h"
#include "base/shared_memory.h"

namespace lockstep {
namespace {

// Sent with the descriptor, to check that both sides use the same layout.
struct ArenaGreeting {
  std::array<char, 8> magic{'L', 'K', 'S', 'A', 'R', 'E', 'N', 'A'};
  std::uint64_t bytes = 0;

  friend bool operator==(const ArenaGreeting&, const ArenaGreeting&) = default;
};
// What each rank sends to the first one, and the first one to each, once it has filled in its area.
constexpr std::byte kReady{1};

Status send_arena(int socket, const SharedMemory& memory, std::size_t bytes, Deadline deadline) {
  const ArenaGreeting greeting{.bytes = bytes};
  auto rest = std::as_bytes(std::span(&greeting, 1));
  int fd = memory.fd();
  while (!rest.empty()) {
    const IoResult sent = send_some(socket, rest, fd);
    if (sent.closed) return Status(StatusCode::peer_lost, "it closed the connection");
    if (sent.error != 0) return Status(StatusCode::peer_lost, errno_text(sent.error));
    if (sent.would_block) LOCKSTEP_RETURN_IF_ERROR(wait_ready(socket, POLLOUT, deadline));
    if (sent.bytes > 0) fd = -1;
    rest = rest.subspan(sent.bytes);
  }
  return Status();
}

Result<std::unique_ptr<SharedMemory>> receive_arena(int socket, std::size_t bytes, Deadline deadline) {
  ArenaGreeting greeting;
  auto rest = std::as_writable_bytes(std::span(&greeting, 1));
  std::vector<UniqueFd> fds;
  while (!rest.empty()) {
    const IoResult received = receive_some(socket, rest, fds);
    if (received.closed) return Status(StatusCode::peer_lost, "it closed the connection");
    if (received.error != 0) return Status(StatusCode::peer_lost, errno_text(received.error));
    if (received.would_block) LOCKSTEP_RETURN_IF_ERROR(wait_ready(socket, POLLIN, deadline));
    rest = rest.subspan(received.bytes);
  }
  if (greeting != ArenaGreeting{.bytes = bytes} || fds.size() != 1) {
    return Status(StatusCode::protocol_error,
                  "its shared memory is laid out differently; do all ranks run the same version of Lockstep?");
  }
  return SharedMemory::map(std::move(fds.front()), bytes);
}

Status send_ready(int socket, Deadline deadline) { return send_all(socket, std::span(&kReady, 1), deadline); }

Status receive_ready(int socket, Deadline deadline) {
  std::byte ready{};
  LOCKSTEP_RETURN_IF_ERROR(receive_all(socket, std::span(&ready, 1), deadline));
  return ready == kReady ? Status() : Status(StatusCode::protocol_error, "it sent something unexpected");
}

class ShmHost {
 public:
  ShmHost(const Topology& topology, std::span<const int> control_fds, Deadline deadline)
      : topology_(topology),
        control_fds_(control_fds),
        deadline_(deadline),
        bytes_(HostArena::bytes(topology.local_size(), topology.size())) {}

  Result<std::unique_ptr<HostTransport>> connect() {
    const bool first = topology_.local_rank() == 0;
    auto memory = first ? SharedMemory::create(bytes_, "lockstep-arena") : from_first();
    if (!memory.ok()) return memory.status();
    std::shared_ptr<SharedMemory> shared = std::move(*memory);
    const HostArena arena(shared, shared->data(), topology_.local_size(), topology_.size());
    auto& cpus = arena.area(topology_.local_rank()).cpus;
    if (::sched_getaffinity(0, sizeof(cpus), &cpus) != 0) CPU_ZERO(&cpus);
    LOCKSTEP_RETURN_IF_ERROR(first ? gather(*shared) : follow());
    shared->close_fd();
    return std::make_unique<HostTransport>(
        HostTransport::Config{.local_rank = topology_.local_rank(),
                              .ranks = topology_.local_ranks(),
                              .arena = arena,
                              .busy_machine = topology_.local_size() > 1 && topology_.oversubscribed});
  }

 private:
  Result<std::unique_ptr<SharedMemory>> from_first() {
    auto memory = receive_arena(control_fds_[0], bytes_, deadline_);
    if (!memory.ok()) return failed(0, memory.status());
    return memory;
  }
  // No rank continues before all have filled in their areas.
  Status gather(const SharedMemory& memory) {
    LOCKSTEP_RETURN_IF_ERROR(with_each([&](int fd) { return send_arena(fd, memory, bytes_, deadline_); }));
    LOCKSTEP_RETURN_IF_ERROR(with_each([&](int fd) { return receive_ready(fd, deadline_); }));
    return with_each([&](int fd) { return send_ready(fd, deadline_); });
  }
  Status follow() {
    Status status = send_ready(control_fds_[0], deadline_);
    if (status.ok()) status = receive_ready(control_fds_[0], deadline_);
    return status.ok() ? status : failed(0, status);
  }
  template <typename Step>
  Status with_each(const Step& step) {
    for (std::size_t local = 1; local < control_fds_.size(); ++local) {
      if (Status status = step(control_fds_[local]); !status.ok()) return failed(local, status);
    }
    return Status();
  }
  Status failed(std::size_t local, const Status& why) const {
    const auto& member = topology_.member(topology_.local_ranks()[local]);
    return why.with_context(fmt::format("cannot share memory with {}", member.describe()));
  }

  const Topology& topology_;
  const std::span<const int> control_fds_;
  const Deadline deadline_;
  const std::size_t bytes_;
};

}  // namespace

Result<std::unique_ptr<HostTransport>> connect_shm_host(const Topology& topology, std::span<const int> control_fds,
                                                        Deadline deadline) {
  return ShmHost(topology, control_fds, deadline).connect();
}

}  // namespace lockstep
