// The server that TcpStore clients connect to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/status.h"
#include "lockstep/store/stores.h"

namespace lockstep {

// As lockstep/store/stores.h promises of a StoreServer. Its thread is started by start() and joined by the destructor.
class TcpStoreServer final : public StoreServer {
 public:
  // already_exists: the port is in use. invalid_argument: not an address of this host.
  static Result<std::unique_ptr<TcpStoreServer>> start(StoreServerOptions options);
  ~TcpStoreServer() override;
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  std::uint16_t port() const override;
  std::string address() const override;

 private:
  class Running;
  explicit TcpStoreServer(std::unique_ptr<Running> running);
  std::unique_ptr<Running> running_;
};

}  // namespace lockstep
