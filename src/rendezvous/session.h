// A group that is being formed: its ranks exchange values step by step in the store. Used by one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "lockstep/store/store.h"
#include "rendezvous/agreement.h"

namespace lockstep {

class Session {
 public:
  // Agrees with the others (agreement.h); until the deadline. After an error nothing is left to do.
  static Result<std::unique_ptr<Session>> join(std::shared_ptr<Store> store, const std::string& scope,
                                               const MemberRecord& self, Deadline deadline);

  // Fresh and random.
  const std::string& id() const { return agreement_.outcome->session(); }
  const std::vector<MemberRecord>& members() const { return agreement_.members; }  // by rank
  const MemberRecord& self() const { return store_->self(); }
  Deadline deadline() const { return store_->deadline(); }

  // Every rank gives a value and gets all of them, by rank.
  Result<std::vector<std::string>> exchange(const std::string& step, const std::string& value);
  // Ok while no rank has failed. One round trip.
  Status check() { return agreement_.outcome->check(); }
  // Reports that this rank has everything that it needs. Rank 0 returns when all ranks have, and removes the keys.
  Status complete();
  // Ends the attempt on all ranks; returns the reason that all get (not always `why`: the first one
  // counts). Call it once; the session is over afterwards.
  Status fail(const Status& why) { return agreement_.outcome->conclude(why); }

 private:
  Session(std::unique_ptr<SessionStore> store, Agreement agreement);
  std::vector<std::string> keys_of(const std::string& step) const;
  // Rank 0 waits for the values of all others.
  Result<std::vector<std::string>> collect(const std::string& step);
  Status await(std::span<const std::string> keys, const std::string& step);

  std::unique_ptr<SessionStore> store_;
  Agreement agreement_;
};

}  // namespace lockstep
