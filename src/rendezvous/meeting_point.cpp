#include "rendezvous/meeting_point.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/net/resolve.h"
#include "base/net/socket.h"
#include "store/file/file_store.h"
#include "store/memory_store.h"
#include "store/tcp/tcp_store.h"
#include "store/tcp/tcp_store_server.h"

namespace lockstep {
namespace {

// The master as the user wrote it, and the names of its settings.
struct Master {
  explicit Master(const Placement& placement)
      : host_name(placement.scheme == InitScheme::env ? "MASTER_ADDR" : "the host of init_method tcp://"),
        port_name(placement.scheme == InitScheme::env ? "MASTER_PORT" : "the port of init_method tcp://"),
        host(placement.master_host),
        port(placement.master_port) {}

  std::string address() const {
    return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
  }

  const std::string host_name;
  const std::string port_name;
  const std::string host;
  const std::uint16_t port;
};

Status explain_serving(const Status& status, const Master& master) {
  switch (status.code()) {
    case StatusCode::already_exists:
      return Status(
          status.code(),
          fmt::format("rank 0 cannot serve the store: {} {} on {} is in use by another process. Choose another "
                      "port for all ranks, or end that process (an earlier run, or a second rank 0?)",
                      master.port_name, master.port, master.host));
    case StatusCode::invalid_argument:
      return Status(status.code(),
                    fmt::format("rank 0 cannot serve the store: {} '{}' is not an address of this host. Set it to an "
                                "address of the host where rank 0 runs, or start rank 0 there ({})",
                                master.host_name, master.host, status.message()));
    case StatusCode::unauthenticated:
      return status.with_context(
          fmt::format("rank 0 cannot serve the store at {} '{}'", master.host_name, master.host));
    default: return status.with_context(fmt::format("rank 0 cannot serve the store at {}", master.address()));
  }
}

Status explain_connecting(const Status& status, const Master& master, Deadline::Clock::time_point start) {
  const std::chrono::duration<double> elapsed = Deadline::Clock::now() - start;
  switch (status.code()) {
    case StatusCode::unavailable:
    case StatusCode::timed_out:
      return Status(
          StatusCode::unavailable,
          fmt::format("the store at {} could not be reached within {:.1f} s. Is rank 0 running there, and are "
                      "{} and {} the same for all ranks? ({})",
                      master.address(), elapsed.count(), master.host_name, master.port_name, status.message()));
    case StatusCode::unauthenticated:
      return Status(status.code(),
                    fmt::format("the store at {} and this process do not have the same secret. Set the same "
                                "LOCKSTEP_SECRET (or LOCKSTEP_SECRET_FILE) for all ranks ({})",
                                master.address(), status.message()));
    default: return status.with_context(fmt::format("connecting to the store at {}", master.address()));
  }
}

// A resolver failure is final for the rank that serves. For the others a name may still appear, but they fail at once
// too, because a misspelt name never does.
Status check_resolvable(const Master& master) {
  const auto addresses = resolve(master.host, master.port);
  if (addresses.ok()) return {};
  return Status(StatusCode::unavailable,
                fmt::format("{} '{}' cannot be resolved: {}. Use a name that every host can resolve, or an address",
                            master.host_name, master.host, addresses.status().message()));
}

Result<std::unique_ptr<TcpStoreServer>> serve(const Placement& placement, const Master& master, const Secret& secret) {
  StoreServerOptions options;
  options.host = master.host;
  options.port = master.port;
  options.listening_fd = placement.store_fd.value_or(-1);
  options.secret = secret;
  auto server = TcpStoreServer::start(std::move(options));
  if (!server.ok()) return explain_serving(server.status(), master);
  return server;
}

// A client of a server in the same process: the server ends after the client.
class ServedStore {
 public:
  ServedStore(std::unique_ptr<TcpStoreServer> server, std::shared_ptr<TcpStore> client)
      : server_(std::move(server)), client_(std::move(client)) {}
  Store* client() const { return client_.get(); }

 private:
  std::unique_ptr<TcpStoreServer> server_;
  std::shared_ptr<TcpStore> client_;
};

Result<std::shared_ptr<Store>> open_tcp_store(const Placement& placement, const Secret& secret, Deadline deadline) {
  const Master master(placement);
  LOCKSTEP_RETURN_IF_ERROR(check_resolvable(master));
  std::unique_ptr<TcpStoreServer> server;
  if (placement.rank == 0 && !placement.store_is_served) {
    auto started = serve(placement, master, secret);
    if (!started.ok()) return started.status();
    server = *std::move(started);
    log_debug("serving the store at {}", server->address());
  }
  const auto start = Deadline::Clock::now();
  auto client = TcpStore::connect(master.host, master.port, secret, deadline);
  if (!client.ok()) return explain_connecting(client.status(), master, start);
  if (!server) return std::shared_ptr<Store>(*std::move(client));
  const auto served = std::make_shared<ServedStore>(std::move(server), *std::move(client));
  return std::shared_ptr<Store>(served, served->client());
}

Result<std::shared_ptr<Store>> open_meeting_file(const std::string& path) {
  auto store = FileStore::open(path);
  if (!store.ok()) return store.status().with_context("the file of init_method file://");
  return std::shared_ptr<Store>(*std::move(store));
}

}  // namespace

Result<MeetingPoint> open_meeting_point(const Placement& placement, const Secret& secret, Deadline deadline) {
  const bool is_file = placement.scheme == InitScheme::file;
  // There is no other rank: a port or a file would only get in the way of others.
  const bool needs_no_store = placement.world_size == 1 && !placement.store_is_served && !placement.store_fd;
  MeetingPoint point{.store = nullptr,
                     .rank = placement.rank,
                     .world_size = placement.world_size,
                     .master_host = placement.master_host};
  if (needs_no_store) {
    point.store = std::make_shared<MemoryStore>();
    return point;
  }
  auto store = is_file ? open_meeting_file(placement.path) : open_tcp_store(placement, secret, deadline);
  if (!store.ok()) return store.status();
  point.store = *std::move(store);
  return point;
}

Result<MeetingPoint> find_meeting_point(const InitOptions& options, const Secret& secret, Deadline deadline) {
  const auto placement = find_placement(options, process_environment());
  if (!placement.ok()) return placement.status();
  if (!placement->scheduler.empty()) {
    log_info("started by {} as rank {} of {}; the ranks meet at {}:{}", placement->scheduler, placement->rank,
             placement->world_size, placement->master_host, placement->master_port);
  }
  return open_meeting_point(*placement, secret, deadline);
}

}  // namespace lockstep
