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

// Sent with the descriptor, to check that both sides use the same layout of the area.
struct AreaGreeting {
  std::array<char, 8> magic{'L', 'K', 'S', 'A', 'R', 'E', 'A', '1'};
  std::uint64_t bytes = sizeof(SharedArea);

  friend bool operator==(const AreaGreeting&, const AreaGreeting&) = default;
};

Status send_area(int socket, const SharedMemory& memory, Deadline deadline) {
  const AreaGreeting greeting;
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

Result<std::unique_ptr<SharedMemory>> receive_area(int socket, Deadline deadline) {
  AreaGreeting greeting;
  auto rest = std::as_writable_bytes(std::span(&greeting, 1));
  std::vector<UniqueFd> fds;
  while (!rest.empty()) {
    const IoResult received = receive_some(socket, rest, fds);
    if (received.closed) return Status(StatusCode::peer_lost, "it closed the connection");
    if (received.error != 0) return Status(StatusCode::peer_lost, errno_text(received.error));
    if (received.would_block) LOCKSTEP_RETURN_IF_ERROR(wait_ready(socket, POLLIN, deadline));
    rest = rest.subspan(received.bytes);
  }
  if (greeting != AreaGreeting{} || fds.size() != 1) {
    return Status(StatusCode::protocol_error,
                  "its shared memory is laid out differently; do all ranks run the same version of Lockstep?");
  }
  return SharedMemory::map(std::move(fds.front()), sizeof(SharedArea));
}

}  // namespace

Result<std::unique_ptr<HostTransport>> connect_shm_host(const Topology& topology, std::span<const int> control_fds,
                                                        Deadline deadline) {
  auto own = SharedMemory::create(sizeof(SharedArea), "lockstep-area");
  if (!own.ok()) return own.status();
  auto* own_area = reinterpret_cast<SharedArea*>((*own)->data());
  // Written before the area is passed to the peers, so that they see it.
  if (::sched_getaffinity(0, sizeof(own_area->cpus), &own_area->cpus) != 0) CPU_ZERO(&own_area->cpus);

  const auto& ranks = topology.local_ranks();
  const auto failed = [&](std::size_t local, const Status& why) {
    return why.with_context(fmt::format("cannot share memory with {}", topology.member(ranks[local]).describe()));
  };
  for (std::size_t local = 0; local < ranks.size(); ++local) {
    if (static_cast<int>(local) == topology.local_rank()) continue;
    if (auto status = send_area(control_fds[local], **own, deadline); !status.ok()) return failed(local, status);
  }

  auto memories = std::make_shared<std::vector<std::unique_ptr<SharedMemory>>>(ranks.size());
  HostTransport::Config config{.local_rank = topology.local_rank(), .ranks = ranks, .areas = {}, .memory = memories};
  for (std::size_t local = 0; local < ranks.size(); ++local) {
    auto& memory = (*memories)[local];
    if (static_cast<int>(local) == topology.local_rank()) {
      memory = std::move(*own);
    } else {
      auto mapped = receive_area(control_fds[local], deadline);
      if (!mapped.ok()) return failed(local, mapped.status());
      memory = std::move(*mapped);
    }
    memory->close_fd();
    config.areas.push_back(reinterpret_cast<SharedArea*>(memory->data()));
  }
  return std::make_unique<HostTransport>(std::move(config));
}

}  // namespace lockstep
