// The doors of an elastic job: every process serves a small store of its own, so that whoever is left can meet at the
// first one that answers. No process' end takes the meeting place away.
//
// Keys at a door: `me` and `generation` (the owner's id, and the newest decision that it knows), `visit/<id>/<nonce>`
// (a registration), `gone/<id>/<nonce>` (the last will of the visitor's connection), `answer/<id>/<nonce>`; and under
// `group/<generation>/` the rendezvous of the group that its leader forms there.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "elastic/recovery.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"
#include "lockstep/store/store.h"
#include "lockstep/store/tcp_store_server.h"

namespace lockstep::elastic {

// The door of this process. Thread-safe.
class RankStore {
 public:
  // Listens on `host`, any port, and serves until destroyed.
  static Result<std::unique_ptr<RankStore>> open(const std::string& host, const Secret& secret, const std::string& id);

  // "host:port".
  std::string address() const { return server_->address(); }
  // For everybody who looks.
  Status publish(const Generation& accepted);

  struct Visitor {
    Registration registration;
    std::string nonce;
  };
  // Who is registered and still connected, in order of id; forgets the others.
  Result<std::vector<Visitor>> visitors();
  // Of those, who is still connected.
  Result<bool> is_connected(const Visitor& visitor);
  Status answer(const Visitor& visitor, const Answer& answer);
  // The owner's own connection.
  const std::shared_ptr<Store>& store() const { return store_; }

 private:
  RankStore(std::unique_ptr<TcpStoreServer> server, std::shared_ptr<Store> store);
  std::unique_ptr<TcpStoreServer> server_;
  std::shared_ptr<Store> store_;
};

// A connection to the door of `member`. peer_lost: refused, or another process listens there now.
Result<std::shared_ptr<Store>> visit(const Member& member, const Secret& secret, Deadline deadline);
// Ends at the deadline at the latest, and a little after it.
Look look_at(const Member& member, const Secret& secret, Deadline deadline);

// A registration at the door of another process; ends with this object. Used by one thread.
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

}  // namespace lockstep::elastic
