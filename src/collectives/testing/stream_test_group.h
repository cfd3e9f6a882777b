// For the tests of the stream algorithms: n StreamTransports in one process, connected by real
// sockets, one thread per rank.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/net/resolve.h"
#include "base/net/socket.h"
#include "collectives/stream/algorithms.h"

namespace lockstep::stream_test {

enum class LinkKind { tcp, unix_socket };

inline std::pair<UniqueFd, UniqueFd> connected_pair(LinkKind kind) {
  if (kind == LinkKind::unix_socket) {
    int fds[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
    return {UniqueFd(fds[0]), UniqueFd(fds[1])};
  }
  const auto deadline = Deadline::after(std::chrono::seconds(10));
  auto address = resolve("127.0.0.1", 0).value().front();
  UniqueFd listener = std::move(listen_on(address)).value();
  auto bound = local_address(listener.get()).value();
  UniqueFd first = std::move(connect_to(bound, deadline)).value();
  UniqueFd second = std::move(accept_from(listener.get(), deadline)).value();
  return {std::move(first), std::move(second)};
}

// Stops on request; names the ranks that were missing at the deadline.
class TestScope : public WaitScope {
 public:
  TestScope(const std::atomic<bool>& stop, int stop_fd, Deadline deadline, std::atomic<int>* checks = nullptr)
      : WaitScope(stop, stop_fd), deadline_(deadline), checks_(checks) {}

  Deadline deadline() override { return deadline_; }
  Status check(std::span<const int> waiting_for) override {
    if (checks_ != nullptr) ++*checks_;
    if (stopped()) return Status(StatusCode::aborted, "stopped by the test");
    if (deadline().expired()) {
      return Status(StatusCode::timed_out, fmt::format("waiting for ranks {}", fmt::join(waiting_for, ",")));
    }
    return {};
  }

 private:
  Deadline deadline_;
  std::atomic<int>* checks_;
};

struct GroupSetup {
  int size = 2;
  LinkKind kind = LinkKind::tcp;
  int streams = 1;
  StreamOptions options = {};
};

class StreamTestGroup {
 public:
  explicit StreamTestGroup(const GroupSetup& setup) : stop_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    const auto n = static_cast<std::size_t>(setup.size);
    std::vector<std::vector<std::vector<Channel>>> connections(n);
    for (auto& of_rank : connections) of_rank.resize(n);
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = a + 1; b < n; ++b) {
        for (int i = 0; i < setup.streams; ++i) {
          auto [first, second] = connected_pair(setup.kind);
          connections[a][b].push_back(std::move(first));
          connections[b][a].push_back(std::move(second));
        }
      }
    }
    for (std::size_t r = 0; r < n; ++r) {
      transports_.push_back(
          std::make_unique<StreamTransport>(static_cast<int>(r), std::move(connections[r]), setup.options));
    }
  }

  std::size_t size() const { return transports_.size(); }
  StreamTransport& transport(std::size_t rank) { return *transports_[rank]; }
  // Closes all connections of a rank, as its death would.
  void close(std::size_t rank) { transports_[rank].reset(); }

  void stop() {
    stop_.store(true, std::memory_order_release);  // pairs with WaitScope::stopped
    const std::uint64_t one = 1;
    if (::write(stop_fd_.get(), &one, sizeof(one)) != sizeof(one)) std::abort();
  }

  TestScope scope(std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    return TestScope(stop_, stop_fd_.get(), Deadline::after(timeout), &checks_);
  }
  // Returns when some rank has been waiting long enough to ask its scope.
  void await_waiting_rank() const {
    while (checks_ == 0) std::this_thread::yield();
  }

  using Body = std::function<Status(std::size_t rank, StreamTransport&, WaitScope&)>;
  // Runs `body` on one thread for each rank of `ranks` (all by default); results by rank.
  std::vector<Status> run(const Body& body, std::chrono::milliseconds timeout = std::chrono::seconds(60),
                          std::vector<std::size_t> ranks = {}) {
    if (ranks.empty()) {
      for (std::size_t r = 0; r < size(); ++r) ranks.push_back(r);
    }
    std::vector<Status> results(size());
    std::vector<std::thread> threads;
    for (const std::size_t rank : ranks) {
      threads.emplace_back([&, rank] {
        TestScope own = scope(timeout);
        results[rank] = body(rank, *transports_[rank], own);
      });
    }
    for (auto& thread : threads) thread.join();
    return results;
  }

 private:
  std::vector<std::unique_ptr<StreamTransport>> transports_;
  std::atomic<bool> stop_{false};
  std::atomic<int> checks_{0};
  UniqueFd stop_fd_;
};

}  // namespace lockstep::stream_test
