// Ranks as threads, for the tests of this folder: a store of each kind, and checks of the meshes.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/net/socket.h"
#include "rendezvous/rendezvous.h"
#include "store/file/file_store.h"
#include "store/memory_store.h"
#include "store/tcp/tcp_store.h"
#include "store/tcp/tcp_store_server.h"

namespace lockstep::test_ranks {

inline Deadline in_seconds(double seconds) {
  return Deadline::after(std::chrono::duration_cast<Deadline::Duration>(std::chrono::duration<double>(seconds)));
}

// A store that several ranks can open; each call of open() is one more rank.
class StorePlace {
 public:
  virtual ~StorePlace() = default;
  virtual std::shared_ptr<Store> open() = 0;
};

class MemoryPlace : public StorePlace {
 public:
  std::shared_ptr<Store> open() override { return store_; }

 private:
  std::shared_ptr<Store> store_ = std::make_shared<MemoryStore>();
};

class FilePlace : public StorePlace {
 public:
  FilePlace() { EXPECT_NE(::mkdtemp(folder_.data()), nullptr); }
  ~FilePlace() override {
    ::unlink(path().c_str());
    ::rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/store"; }
  std::shared_ptr<Store> open() override { return value_or_throw(FileStore::open(path())); }

 private:
  std::string folder_ = "/tmp/lockstep-rendezvous-XXXXXX";
};

class TcpPlace : public StorePlace {
 public:
  std::shared_ptr<Store> open() override {
    return value_or_throw(TcpStore::connect("127.0.0.1", server_->port(), Secret(), in_seconds(20)));
  }
  // The process that serves the store ends.
  void stop() { server_.reset(); }

 private:
  std::unique_ptr<TcpStoreServer> server_ = value_or_throw(TcpStoreServer::start({}));
};

struct RankSetup {
  int rank = 0;
  int world_size = 1;
  std::shared_ptr<Store> store = {};
  MeshOptions options = {.scope = "world"};
  Secret secret = {};
  double timeout = 30;
};

inline Result<Mesh> connect(const RankSetup& setup) {
  return connect_mesh({.store = setup.store, .rank = setup.rank, .world_size = setup.world_size}, setup.secret,
                      setup.options, in_seconds(setup.timeout));
}

inline std::string claim_key(int rank) { return "lockstep/rendezvous/5:world/claim/" + std::to_string(rank); }

// Runs all ranks at the same time; the results in the order of `setups`. The last one may have to
// wait until all others have announced themselves.
enum class LastRank { at_once, late };
inline std::vector<Result<Mesh>> connect_all(const std::vector<RankSetup>& setups, LastRank last = LastRank::at_once) {
  std::vector<std::unique_ptr<Result<Mesh>>> results(setups.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < setups.size(); ++i) {
    if (last == LastRank::late && i + 1 == setups.size()) {
      std::vector<std::string> claims;
      for (std::size_t other = 0; other < i; ++other) claims.push_back(claim_key(setups[other].rank));
      EXPECT_TRUE(setups[i].store->wait(claims, in_seconds(20)).ok());
    }
    threads.emplace_back([&, i] { results[i] = std::make_unique<Result<Mesh>>(connect(setups[i])); });
  }
  for (auto& thread : threads) thread.join();
  std::vector<Result<Mesh>> meshes;
  for (auto& result : results) meshes.push_back(std::move(*result));
  return meshes;
}

inline std::vector<RankSetup> world_of(int size, StorePlace& place) {
  std::vector<RankSetup> setups;
  for (int rank = 0; rank < size; ++rank) setups.push_back({.rank = rank, .world_size = size, .store = place.open()});
  return setups;
}

inline int family_of(const Channel& channel) { return local_address(channel.fd())->family(); }

// Sends a text on one end of a link and expects to receive it at the other.
inline void expect_connected(Channel& a, Channel& b, const std::string& text) {
  ASSERT_TRUE(a.valid() && b.valid()) << text;
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  ASSERT_TRUE(send_all(a, bytes, in_seconds(5)).ok()) << text;
  std::string heard(text.size(), ' ');
  ASSERT_TRUE(receive_all(b, std::as_writable_bytes(std::span(heard.data(), heard.size())), in_seconds(5)).ok());
  EXPECT_EQ(heard, text);
}

// Connects the link `name` of rank `from` in both directions of its life: one rank connects, the other one takes.
inline void expect_link(Mesh& from, Mesh& to, const std::string& role, std::uint32_t index, int family) {
  const std::string what = role + " " + std::to_string(from.topology.rank) + " to " + std::to_string(to.topology.rank);
  auto mine = from.links->connect({to.topology.rank, role, index}, in_seconds(5));
  ASSERT_TRUE(mine.ok()) << mine.status().message();
  LinkSource::Links theirs;
  for (const Deadline deadline = in_seconds(5); theirs.empty() && !deadline.expired();)
    theirs = to.links->take_all(role);
  ASSERT_EQ(theirs.size(), 1U) << what;
  EXPECT_EQ(theirs[0].first, (LinkName{from.topology.rank, role, index}));
  EXPECT_EQ(family_of(*mine), family);
  expect_connected(*mine, theirs[0].second, what);
}

// Ranks agree about the topology; the control links are those that there should be; and any two ranks can connect.
inline void expect_mesh(std::vector<Result<Mesh>>& meshes) {
  for (std::size_t a = 0; a < meshes.size(); ++a) {
    ASSERT_TRUE(meshes[a].ok()) << meshes[a].status().message();
    const Topology& topology = meshes[a]->topology;
    EXPECT_EQ(meshes[a]->group_id, meshes[0]->group_id);
    EXPECT_EQ(topology.rank, static_cast<int>(a));
    EXPECT_EQ(topology.hosts, meshes[0]->topology.hosts);
    EXPECT_NE(meshes[a]->host, nullptr);
    ASSERT_EQ(meshes[a]->control.size(), meshes.size());
    const auto peers = meshes.size() == 1 ? std::vector<int>{} : control_peers(topology);
    for (std::size_t b = 0; b < meshes.size(); ++b) {
      const bool linked = std::find(peers.begin(), peers.end(), static_cast<int>(b)) != peers.end();
      EXPECT_EQ(meshes[a]->control[b].valid(), linked) << a << " and " << b;
      if (!linked || b > a) continue;
      expect_connected(meshes[a]->control[b], meshes[b]->control[a], "control");
    }
    for (std::size_t b = 0; b < a; ++b) {
      const int family = topology.same_host(static_cast<int>(b)) ? AF_UNIX : AF_INET;
      if (meshes[a]->control[b].valid()) {
        EXPECT_EQ(family_of(meshes[a]->control[b]), family);
      }
      expect_link(*meshes[a], *meshes[b], kMessagesRole, 0, family);
      expect_link(*meshes[b], *meshes[a], kMessagesRole, 0, family);
      const int data = meshes[a]->links->data_links(static_cast<int>(b));
      EXPECT_EQ(meshes[b]->links->data_links(static_cast<int>(a)), data);
      for (int i = 0; i < data; ++i) {
        expect_link(*meshes[a], *meshes[b], kDataRole, static_cast<std::uint32_t>(i), family);
      }
    }
  }
}

}  // namespace lockstep::test_ranks
