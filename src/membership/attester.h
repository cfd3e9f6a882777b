// How it is known that a process has ended.
//
// A connection that is refused or reset proves nothing: a firewall can do that. An end counts only if it is attested by
// a process that can know: one on the same site, which asks the kernel, the launcher that started it, or the guard of
// that launcher (launch/process/guard.h), also for the launcher itself. An attestation also states the newest
// generations in the site's roster, read after the end: the process has accepted nothing else since the oldest of them,
// so that it cannot have continued in a generation that the others do not know of. It stays true for ever, so it does
// not matter when it arrives, or how often.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/process_state.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"
#include "lockstep/store/store.h"
#include "membership/records.h"
#include "store/tcp/tcp_store_server.h"

namespace lockstep::membership {

struct Attestation {
  // Several, because the newest may be void (decision.h), and must not hide an older one that is not.
  static constexpr std::size_t kGenerations = 4;
  // What the site's processes have accepted, newest first; empty: nothing. With kGenerations of them, there may be
  // older ones.
  std::vector<Generation> accepted = {};

  Generation newest() const { return accepted.empty() ? Generation{} : accepted.front(); }
};

// The attestations of one site, over a store with the job's secret. A launcher's guard serves it, because it survives
// the launcher; the launcher adds the ends of its ranks through a connection of its own. Used by one thread.
class Attester {
 public:
  // Serves on the given address until destroyed.
  static Result<std::unique_ptr<Attester>> open(StoreServerOptions options);
  // The one that another process serves at `address`.
  static Result<std::unique_ptr<Attester>> connect(const std::string& address, const Secret& secret, Deadline deadline);
  const std::string& address() const { return address_; }
  // A job that restarts its ranks for ever must not fill the store: no member of a generation ended so long ago.
  static constexpr std::size_t kKeptAttestations = 1024;

  // Call after the process has ended. Reads the roster itself; without a readable roster nothing is attested.
  Status attest(const ProcessIdentity& ended, const std::string& roster);

 private:
  Attester(std::unique_ptr<TcpStoreServer> server, std::string address, std::shared_ptr<Store> store)
      : server_(std::move(server)), address_(std::move(address)), store_(std::move(store)) {}
  std::unique_ptr<TcpStoreServer> server_;  // null: another process serves it
  const std::string address_;
  std::shared_ptr<Store> store_;
  std::deque<std::string> attested_;  // the keys that this object has set, the oldest first
};

// What a process of `site`, with this roster, can find out about the end of `member`: from the kernel if the member
// belongs to that site, otherwise from the member's attester. Nothing if it is not known to have ended.
std::optional<Attestation> find_attestation(const Member& member, const std::string& site, const std::string& roster,
                                            const Secret& secret, Deadline deadline);

}  // namespace lockstep::membership
