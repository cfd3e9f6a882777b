#include "communicator/region_exchange.h"

#include <utility>

namespace lockstep {

RegionExchange::RegionExchange(const Topology& topology, HostTransport& host, Send send)
    : topology_(topology), host_(host), send_(std::move(send)) {}

std::uint32_t RegionExchange::publish(std::shared_ptr<const SharedMemory> memory) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t id = host_.add_own_region({memory->data(), memory->size(), memory});
  published_.emplace(id, Published{std::move(memory), {}});
  return id;
}

void RegionExchange::withdraw(std::uint32_t id) {
  std::set<int> granted;
  {
    const std::lock_guard lock(mutex_);
    host_.drop_own_region(id);
    const auto entry = published_.find(id);
    if (entry == published_.end()) return;
    granted = std::move(entry->second.granted);
    published_.erase(entry);
  }
  for (const int rank : granted) send_(rank, RegionDropped{topology_.rank, rank, id}, {});
}

void RegionExchange::request(int local, std::uint32_t id) {
  const int rank = host_.group_rank(local);
  send_(rank, RegionRequest{topology_.rank, rank, id}, {});
}

void RegionExchange::on_request(const RegionRequest& request) {
  if (!is_local(request.from)) return;
  // Sent with the lock, so that the message that the region was dropped cannot overtake it.
  const std::lock_guard lock(mutex_);
  const auto entry = published_.find(request.id);
  if (entry == published_.end()) return;  // dropped meanwhile: the operation that needed it has failed
  entry->second.granted.insert(request.from);
  const std::shared_ptr<const SharedMemory> memory = entry->second.memory;
  const RegionGrant grant{topology_.rank, request.from, request.id, memory->size()};
  send_(request.from, grant, {memory->fd(), memory});
}

Status RegionExchange::on_grant(const RegionGrant& grant, UniqueFd fd) {
  if (!is_local(grant.from)) return {};
  const auto& member = topology_.member(grant.from);
  auto memory = SharedMemory::map(std::move(fd), grant.bytes);
  if (!memory.ok()) return memory.status().with_context("registered memory of " + member.describe());
  (*memory)->close_fd();
  const std::shared_ptr<SharedMemory> shared = std::move(*memory);
  host_.add_peer_region(member.local_index, grant.id, {shared->data(), shared->size(), shared});
  return {};
}

void RegionExchange::on_dropped(const RegionDropped& dropped) {
  if (is_local(dropped.from)) host_.drop_peer_region(topology_.member(dropped.from).local_index, dropped.id);
}

}  // namespace lockstep
