#include "transport/inproc/inproc_host.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "base/host_name.h"
#include "base/net/fork_guard.h"
#include "base/net/socket.h"
#include "base/rank_vector.h"
#include "base/shared_memory.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kShortagePause{50};

Status connect_pair(Channel& one, Channel& other) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return Status(StatusCode::resource_exhausted,
                  fmt::format("cannot connect two ranks of this process (socketpair): {}", errno_text(errno)));
  }
  for (const int end : ends) close_in_forked_children(end);
  one = UniqueFd(ends[0]);
  other = UniqueFd(ends[1]);
  return Status();
}

// The links that were connected, and not yet taken, of all ranks.
class Exchange {
 public:
  explicit Exchange(int size) : ranks_(size) {}

  // False if that rank has left.
  bool deliver(int to, LinkName name, Channel fd) {
    const std::lock_guard lock(mutex_);
    if (left_.contains(to)) return false;
    auto& mailbox = ranks_[to][name.role];
    mailbox.links.emplace_back(std::move(name), std::move(fd));
    if (mailbox.listener) mailbox.listener();
    return true;
  }
  // Ends the links that the rank has not taken; from now on it gets none.
  void close(int rank) {
    const std::lock_guard lock(mutex_);
    left_.insert(rank);
    ranks_[rank].clear();
  }
  LinkSource::Links take_all(int rank, const std::string& role) {
    const std::lock_guard lock(mutex_);
    return std::exchange(ranks_[rank][role].links, {});
  }
  void set_listener(int rank, const std::string& role, std::function<void()> listener) {
    const std::lock_guard lock(mutex_);
    ranks_[rank][role].listener = std::move(listener);
  }

 private:
  struct Mailbox {
    LinkSource::Links links;
    std::function<void()> listener;
  };
  std::mutex mutex_;
  RankVector<std::map<std::string, Mailbox>> ranks_;  // guarded by mutex_
  std::set<int> left_;                                // guarded by mutex_
};

class InprocLinks final : public LinkSource {
 public:
  InprocLinks(std::shared_ptr<Exchange> exchange, int rank) : exchange_(std::move(exchange)), rank_(rank) {}
  ~InprocLinks() override { exchange_->close(rank_); }

  Result<Channel> connect(const LinkName& name, Deadline deadline) override {
    Channel mine;
    Channel theirs;
    if (const Status made = connect_pair(mine, theirs); !made.ok()) {
      // Descriptors or memory may become free.
      std::this_thread::sleep_for(std::min<Deadline::Duration>(kShortagePause, deadline.remaining()));
      return Status(StatusCode::timed_out, made.message());
    }
    if (!exchange_->deliver(name.peer, LinkName{rank_, name.role, name.index}, std::move(theirs))) {
      return Status(StatusCode::unavailable, fmt::format("rank {} has left the group", name.peer));
    }
    return mine;
  }
  Links take_all(const std::string& role) override { return exchange_->take_all(rank_, role); }
  void set_listener(const std::string& role, std::function<void()> listener) override {
    exchange_->set_listener(rank_, role, std::move(listener));
  }
  int data_links(int) const override { return 0; }

 private:
  const std::shared_ptr<Exchange> exchange_;
  const int rank_;
};

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
  auto memory = SharedMemory::create(HostArena::bytes(size, size), "lockstep-threads");
  if (!memory.ok()) return memory.status();
  (*memory)->close_fd();
  const std::shared_ptr<SharedMemory> shared = std::move(*memory);

  HostTransport::Config config{.arena = HostArena(shared, shared->data(), size, size), .one_address_space = true};
  for (int rank = 0; rank < size; ++rank) {
    auto& cpus = config.arena.area(rank).cpus;
    if (::sched_getaffinity(0, sizeof(cpus), &cpus) != 0) CPU_ZERO(&cpus);
    config.ranks.push_back(rank);
  }
  const auto exchange = std::make_shared<Exchange>(size);
  std::vector<Mesh> meshes(count);
  for (std::size_t r = 0; r < count; ++r) {
    const int rank = static_cast<int>(r);
    meshes[r].group_id = group_id;
    meshes[r].topology = one_host_topology(rank, size);
    meshes[r].control.resize(count);
    meshes[r].links = std::make_shared<InprocLinks>(exchange, rank);
    config.local_rank = rank;
    meshes[r].host = std::make_unique<HostTransport>(config);
  }
  for (std::size_t r = 1; r < count; ++r) {
    LOCKSTEP_RETURN_IF_ERROR(connect_pair(meshes[0].control[r], meshes[r].control[0]));
  }
  return meshes;
}

}  // namespace lockstep
