// Client of a TcpStoreServer.
#pragma once

#include "lockstep/base/secret.h"
#include "lockstep/store/store.h"

namespace lockstep {

// One connection, shared by all threads: a call that waits does not hold up the others.
// A server that ends, or a connection that breaks, makes all pending and later calls peer_lost,
// naming the address; make a new client to connect again. A server that is connected but does
// not answer (stopped, overloaded) makes a call timed_out at most 2 s after its deadline.
class TcpStore final : public Store {
 public:
  // Tries again while nobody listens, until the deadline: the server may start later.
  // unavailable: the host cannot be resolved, or not be reached (with the last reason).
  // unauthenticated, protocol_error, resource_exhausted: the server refused; at once, no retry.
  static Result<std::shared_ptr<TcpStore>> connect(const std::string& host, std::uint16_t port, const Secret& secret,
                                                   Deadline deadline);
  // Closes the connection; the server then carries out the wills that were not withdrawn.
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
