#include "lockstep/store/stores.h"

#include <utility>

#include "store/file/file_store.h"
#include "store/memory_store.h"
#include "store/prefix_store.h"
#include "store/tcp/tcp_store.h"
#include "store/tcp/tcp_store_server.h"

namespace lockstep {

std::shared_ptr<Store> make_memory_store(const StoreLimits& limits) { return std::make_shared<MemoryStore>(limits); }

std::shared_ptr<Store> open_file_store(const std::string& path, const StoreLimits& limits) {
  return value_or_throw(FileStore::open(path, limits));
}

std::shared_ptr<Store> connect_tcp_store(const std::string& host, std::uint16_t port, const Secret& secret,
                                         Deadline deadline) {
  return value_or_throw(TcpStore::connect(host, port, secret, deadline));
}

std::shared_ptr<Store> make_prefix_store(std::shared_ptr<Store> store, const std::string& prefix) {
  return std::make_shared<PrefixStore>(std::move(store), prefix);
}

std::unique_ptr<StoreServer> serve_tcp_store(StoreServerOptions options) {
  return value_or_throw(TcpStoreServer::start(std::move(options)));
}

}  // namespace lockstep
