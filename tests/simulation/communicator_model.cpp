// Communicator in the simulation: instead of shared memory and tuned algorithms, one simulated TCP connection between
// any two ranks, over which every collective is an exchange of everybody with everybody. It fails as the real one does:
// a lost peer ends the group, on some ranks before and on others after they have completed an operation.
#include "base/net/resolve.h"
#include "lockstep/communicator/communicator.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "base/net/socket.h"
#include "lockstep/base/deadline.h"
#include "simulation/process.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlice{50};

std::string address_key(int rank) { return fmt::format("model/{}", rank); }

template <typename T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

class Communicator::Impl {
 public:
  Impl(Store& store, int rank, int size, const CommunicatorOptions& options)
      : rank_(rank), size_(size), options_(options) {
    connect(store, Deadline::after(options.init_timeout));
    exchange("");
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  const Status& health() const { return health_; }

  // Sends `mine` to all ranks and returns what all have sent, by rank.
  std::vector<std::string> exchange(const std::string& mine) {
    if (!health_.ok()) throw Error(health_);
    std::vector<std::string> all(static_cast<std::size_t>(size_));
    all[static_cast<std::size_t>(rank_)] = mine;
    const Deadline deadline = Deadline::after(options_.peer_timeout);
    const auto length = static_cast<std::uint32_t>(mine.size());
    for (auto& [peer, fd] : peers_) {
      std::string frame(sizeof(length) + mine.size(), '\0');
      std::memcpy(frame.data(), &length, sizeof(length));
      std::copy(mine.begin(), mine.end(), frame.begin() + sizeof(length));
      check(peer, send_all(fd.get(), std::as_bytes(std::span(frame)), deadline));
    }
    for (auto& [peer, fd] : peers_) {
      std::uint32_t theirs = 0;
      check(peer, receive_all(fd.get(), bytes_of(theirs), deadline));
      std::string& text = all[static_cast<std::size_t>(peer)];
      text.resize(theirs);
      check(peer, receive_all(fd.get(), std::as_writable_bytes(std::span(text)), deadline));
    }
    return all;
  }

 private:
  void check(int peer, const Status& status) {
    if (status.ok()) return;
    health_ = Status(StatusCode::peer_lost, fmt::format("rank {} is lost: {}", peer, status.message()));
    peers_.clear();
    throw Error(health_);
  }

  void connect(Store& store, Deadline deadline) {
    if (size_ == 1) return;
    const auto local = resolve(simulation::Simulation::process()->host().address_text(), 0);
    const UniqueFd listener = value_or_throw(listen_on(value_or_throw(local).front()));
    throw_if_error(store.set(address_key(rank_), value_or_throw(local_address(listener.get())).to_string(), deadline));
    for (int peer = 0; peer < rank_; ++peer) {
      const HostPort at = value_or_throw(parse_host_port(wait_for(store, address_key(peer), deadline)));
      UniqueFd fd = value_or_throw(connect_to(value_or_throw(resolve(at.host, at.port)).front(), deadline));
      std::int32_t self = rank_;
      throw_if_error(send_all(fd.get(), bytes_of(self), deadline));
      add(peer, std::move(fd));
    }
    while (static_cast<int>(peers_.size()) < size_ - 1) {
      auto fd = accept_from(listener.get(), Deadline::after(kSlice).earlier(deadline));
      if (!fd.ok()) {
        if (fd.status().code() != StatusCode::timed_out || deadline.expired()) throw Error(fd.status());
        const std::string own = address_key(rank_);  // fails if the forming was given up
        throw_if_error(store.check(std::span(&own, 1), deadline).status());
        continue;
      }
      std::int32_t peer = -1;
      throw_if_error(receive_all(fd->get(), bytes_of(peer), deadline));
      add(peer, *std::move(fd));
    }
  }

  static std::string wait_for(Store& store, const std::string& key, Deadline deadline) {
    while (true) {
      auto value = store.get(key, Deadline::after(kSlice).earlier(deadline));
      if (value.ok()) return *std::move(value);
      if (value.status().code() != StatusCode::timed_out || deadline.expired()) throw Error(value.status());
    }
  }

  void add(int peer, UniqueFd fd) {
    detect_dead_peer(fd.get());
    peers_[peer] = std::move(fd);
  }

  const int rank_;
  const int size_;
  const CommunicatorOptions options_;
  std::map<int, UniqueFd> peers_;
  Status health_;
};

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::~Communicator() = default;

std::shared_ptr<Communicator> Communicator::create(std::shared_ptr<Store> store, int rank, int world_size,
                                                   const CommunicatorOptions& options) {
  return std::shared_ptr<Communicator>(new Communicator(std::make_unique<Impl>(*store, rank, world_size, options)));
}

int Communicator::rank() const { return impl_->rank(); }
int Communicator::size() const { return impl_->size(); }
Status Communicator::health() const { return impl_->health(); }
void Communicator::barrier(const CallOptions&) { impl_->exchange(""); }

void Communicator::all_gather(ConstBuffer input, Buffer output, const CallOptions&) {
  const std::vector<std::string> all = impl_->exchange({static_cast<const char*>(input.data), input.bytes()});
  auto* to = static_cast<char*>(output.data);
  for (const std::string& one : all) to = std::copy(one.begin(), one.end(), to);
}

}  // namespace lockstep
