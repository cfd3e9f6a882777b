#include "transport/inproc/inproc_host.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/host_name.h"
#include "base/net/socket.h"
#include "base/shared_memory.h"

namespace lockstep {
namespace {

Status connect_pair(UniqueFd& one, UniqueFd& other) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return Status(StatusCode::resource_exhausted,
                  fmt::format("cannot connect two ranks of this process (socketpair): {}", errno_text(errno)));
  }
  one.reset(ends[0]);
  other.reset(ends[1]);
  return Status();
}

Topology one_host_topology(int rank, int size) {
  const std::string name = host_name();
  std::vector<Member> members;
  for (int r = 0; r < size; ++r) members.push_back({.rank = r, .host = name, .pid = ::getpid()});
  return make_topology(rank, std::move(members));
}

}  // namespace

Result<std::vector<Mesh>> make_inproc_meshes(int size, const std::string& group_id) {
  const auto count = static_cast<std::size_t>(size);
  // A memfd as in shm/: its pages are allocated only when touched, and staging is seldom needed.
  auto memory = SharedMemory::create(sizeof(SharedArea) * count, "lockstep-threads");
  if (!memory.ok()) return memory.status();
  (*memory)->close_fd();
  auto* areas = reinterpret_cast<SharedArea*>((*memory)->data());
  std::shared_ptr<SharedMemory> shared = std::move(*memory);

  HostTransport::Config config{.memory = shared, .one_address_space = true};
  for (std::size_t r = 0; r < count; ++r) {
    if (::sched_getaffinity(0, sizeof(areas[r].cpus), &areas[r].cpus) != 0) CPU_ZERO(&areas[r].cpus);
    config.areas.push_back(&areas[r]);
    config.ranks.push_back(static_cast<int>(r));
  }
  std::vector<Mesh> meshes(count);
  for (std::size_t r = 0; r < count; ++r) {
    meshes[r].group_id = group_id;
    meshes[r].topology = one_host_topology(static_cast<int>(r), size);
    meshes[r].links.resize(count);
    config.local_rank = static_cast<int>(r);
    meshes[r].host = std::make_unique<HostTransport>(config);
  }
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = a + 1; b < count; ++b) {
      LOCKSTEP_RETURN_IF_ERROR(connect_pair(meshes[a].links[b].control, meshes[b].links[a].control));
      LOCKSTEP_RETURN_IF_ERROR(connect_pair(meshes[a].links[b].messages, meshes[b].links[a].messages));
    }
  }
  return meshes;
}

}  // namespace lockstep
