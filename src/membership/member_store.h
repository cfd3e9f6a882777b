// The member stores of an elastic job: every process serves a small store of its own, so that the survivors can meet in
// the first one that answers. No single process is needed for them to meet.
//
// Keys: `me` and `generation` (the owner's id, and the newest decision that it knows), `registration/<id>/<nonce>` (a
// registration), `gone/<id>/<nonce>` (the last will of the registrant's connection), `answer/<id>/<nonce>`; and under
// `group/<generation>/` the rendezvous of the group that its leader forms there. A leader removes those of earlier
// generations, except for the one in `latest_group`, when it forms the next (elastic/forming.h).
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"
#include "lockstep/store/store.h"
#include "membership/recovery.h"
#include "store/tcp/tcp_store_server.h"

namespace lockstep::membership {

// The member store of this process. Thread-safe.
class MemberStore {
 public:
  // Listens on `host`, any port, and serves until destroyed.
  static Result<std::unique_ptr<MemberStore>> open(const std::string& host, const Secret& secret,
                                                   const std::string& id);

  // "host:port".
  std::string address() const { return server_->address(); }
  // Makes the decision visible to all processes that probe this store.
  Status publish(const Generation& accepted);

  struct Registrant {
    Registration registration;
    std::string nonce;
  };
  // The processes that are registered and still connected, ordered by id. Removes the keys of the others.
  Result<std::vector<Registrant>> registrants();
  // Whether a registrant is still connected.
  Result<bool> is_connected(const Registrant& registrant);
  Status answer(const Registrant& registrant, const Answer& answer);
  // The owner's own connection.
  const std::shared_ptr<Store>& store() const { return store_; }

 private:
  MemberStore(std::unique_ptr<TcpStoreServer> server, std::shared_ptr<Store> store);
  // parse_registration() of what is stored under `key`, which polling finds unchanged nearly every time.
  Result<Registration> parse(const std::string& key, const std::string& text);

  std::unique_ptr<TcpStoreServer> server_;
  std::shared_ptr<Store> store_;
  struct Parsed {
    std::string text;
    Registration registration;
  };
  std::mutex mutex_;
  std::map<std::string, Parsed> parsed_;  // by key, of the present registrations; guarded by mutex_
};

// Connects to the member store of `member`. peer_lost: refused, or another process listens there now.
Result<std::shared_ptr<Store>> connect_to_member_store(const Member& member, const Secret& secret, Deadline deadline);
// Returns at the deadline or slightly after it.
ProbeResult probe_member_store(const Member& member, const Secret& secret, Deadline deadline);

// A registration in the member store of another process; ends with this object. Used by one thread.
class RegistrationClient {
 public:
  static Result<std::unique_ptr<RegistrationClient>> begin(const Member& at, Registration registration,
                                                           const Secret& secret, Deadline deadline);
  const Member& at() const { return at_; }
  const Registration& registration() const { return registration_; }
  // Waits for the answer at most this long.
  Recovery::Followed wait(std::chrono::milliseconds time);

 private:
  RegistrationClient(Member at, Registration registration, std::shared_ptr<Store> store);
  const Member at_;
  const Registration registration_;
  const std::shared_ptr<Store> store_;
  const std::string nonce_;
};

}  // namespace lockstep::membership
