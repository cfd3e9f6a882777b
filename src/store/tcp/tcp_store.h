// Client of a TcpStoreServer.
#pragma once

#include "lockstep/base/secret.h"
#include "lockstep/store/store.h"

namespace lockstep {

// One connection, shared by all threads: a call that waits does not delay other calls. If the server
// ends or the connection breaks, all pending and later calls return peer_lost, which names the
// address; create a new client to connect again. If the server does not answer (it is stopped or
// overloaded), a call returns timed_out at most 2 s after its deadline.
class TcpStore final : public Store {
 public:
  // Retries until the deadline while no process is listening on the port: the server may start later.
  // unavailable: the host cannot be resolved or reached (with the last reason).
  // unauthenticated, protocol_error, resource_exhausted: the server refused; returned without a retry.
  static Result<std::shared_ptr<TcpStore>> connect(const std::string& host, std::uint16_t port, const Secret& secret,
                                                   Deadline deadline);
  // Closes the connection; the server then carries out the last wills that were not withdrawn.
  ~TcpStore() override;

  Status set(const std::string& key, const std::string& value, Deadline deadline) override;
  Result<std::string> get(const std::string& key, Deadline deadline) override;
  Status wait(std::span<const std::string> keys, Deadline deadline) override;
  Result<std::int64_t> add(const std::string& key, std::int64_t amount, Deadline deadline) override;
  Result<std::string> compare_set(const std::string& key, const std::optional<std::string>& expected,
                                  const std::string& desired, Deadline deadline) override;
  Result<bool> check(std::span<const std::string> keys, Deadline deadline) override;
  Result<bool> remove(const std::string& key, Deadline deadline) override;
  Result<std::map<std::string, std::string>> list(const std::string& prefix, Deadline deadline) override;
  Result<std::size_t> append(const std::string& key, const std::string& value, Deadline deadline) override;
  Result<bool> set_last_will(const std::string& key, const std::string& value, Deadline deadline) override;
  Status withdraw_last_will(const std::string& key, Deadline deadline) override;
  std::string describe() const override;

 private:
  class Connection;
  explicit TcpStore(std::unique_ptr<Connection> connection);
  std::unique_ptr<Connection> connection_;
};

}  // namespace lockstep
