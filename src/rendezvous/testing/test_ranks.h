// Ranks as threads, for the tests of this folder: a store of each kind, and checks of the meshes.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

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

inline int family_of(const UniqueFd& fd) { return local_address(fd.get())->family(); }

// Sends a text on one end of a link and expects to receive it at the other.
inline void expect_connected(const UniqueFd& a, const UniqueFd& b, const std::string& text) {
  ASSERT_TRUE(a.valid() && b.valid()) << text;
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  ASSERT_TRUE(send_all(a.get(), bytes, in_seconds(5)).ok()) << text;
  std::string heard(text.size(), ' ');
  ASSERT_TRUE(receive_all(b.get(), std::as_writable_bytes(std::span(heard.data(), heard.size())), in_seconds(5)).ok());
  EXPECT_EQ(heard, text);
}

// Every pair holds the two ends of the same links.
inline void expect_mesh(std::vector<Result<Mesh>>& meshes) {
  for (std::size_t a = 0; a < meshes.size(); ++a) {
    ASSERT_TRUE(meshes[a].ok()) << meshes[a].status().message();
    EXPECT_EQ(meshes[a]->group_id, meshes[0]->group_id);
    EXPECT_EQ(meshes[a]->topology.rank, static_cast<int>(a));
    EXPECT_EQ(meshes[a]->topology.hosts, meshes[0]->topology.hosts);
    ASSERT_EQ(meshes[a]->links.size(), meshes.size());
    EXPECT_NE(meshes[a]->host, nullptr);
    EXPECT_FALSE(meshes[a]->links[a].control.valid());
    for (std::size_t b = 0; b < a; ++b) {
      const auto& to_b = meshes[a]->links[b];
      const auto& to_a = meshes[b]->links[a];
      const std::string pair = std::to_string(a) + " and " + std::to_string(b);
      expect_connected(to_b.control, to_a.control, "control of " + pair);
      expect_connected(to_a.messages, to_b.messages, "messages of " + pair);
      ASSERT_EQ(to_a.data.size(), to_b.data.size());
      for (std::size_t i = 0; i < to_a.data.size(); ++i) {
        expect_connected(to_a.data[i], to_b.data[i], "data " + std::to_string(i) + " of " + pair);
      }
    }
  }
}

}  // namespace lockstep::test_ranks
