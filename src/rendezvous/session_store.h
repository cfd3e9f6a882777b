// One rank's view of the store while a group is being formed: the names of the keys, and errors that explain the loss
// of the store.
//
// Keys of one scope (docs/rendezvous.md):
//   claim/<rank>           MemberRecords, appended: every process that ever claimed the rank
//   invitation/<nonce>     rank 0's answer to one of them
//   gone/<nonce>           last will: that process ended before it was invited
//   <session>/failed       FailureRecord: the group will not be formed; also every rank's last will
//   <session>/<step>/<rank>, <session>/<step>    each rank's value, and all of them together
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "rendezvous/member_record.h"
#include "store/prefix_store.h"

namespace lockstep {

class SessionStore {
 public:
  SessionStore(std::shared_ptr<Store> store, const std::string& scope, MemberRecord self, Deadline deadline);

  const std::string& scope() const { return scope_; }
  const MemberRecord& self() const { return self_; }
  Deadline deadline() const { return deadline_; }
  std::chrono::duration<double> elapsed() const { return Deadline::Clock::now() - start_; }
  // For messages about the store's loss: rank 0, once it is known.
  void set_leader(const MemberRecord& leader) { leader_ = leader; }
  // How long a rank may wait before it checks whether the group has failed: `interval`, or longer with many ranks, so
  // that all together do not keep the store busy; 0.5 s at most, because a failure shall be known within 1 s.
  std::chrono::milliseconds check_interval(std::chrono::milliseconds interval) const;
  // "the store at ..."
  std::string describe() const { return whole_store_->describe(); }

  static std::string claim_key(int rank);
  static std::string gone_key(const std::string& nonce);
  static std::string invitation_key(const std::string& nonce);

  // Each is one round trip, except await, and is bounded by the deadline and a short grace period,
  // so that a last read is possible when the deadline has passed.
  Status set(const std::string& key, const std::string& value);
  Status append(const std::string& key, const std::string& value);
  // Sets the key if it is absent; returns the value that it has afterwards.
  Result<std::string> set_if_absent(const std::string& key, const std::string& value);
  Status remove(const std::string& key);
  // The value now; nullopt if absent.
  Result<std::optional<std::string>> peek(const std::string& key);
  Result<std::map<std::string, std::string>> list(const std::string& prefix);
  // Waits at most `slice`; false or nullopt if the keys are still missing.
  Result<bool> await(std::span<const std::string> keys, std::chrono::milliseconds slice);
  Result<std::optional<std::string>> await(const std::string& key, std::chrono::milliseconds slice);
  Result<bool> set_last_will(const std::string& key, const std::string& value);
  Status withdraw_last_will(const std::string& key);

 private:
  Deadline operation_deadline() const;
  Status explain(const Status& status) const;

  // Constant after construction, except leader_.
  const std::shared_ptr<Store> whole_store_;
  PrefixStore store_;
  const std::string scope_;
  const MemberRecord self_;
  const Deadline deadline_;
  const Deadline::Clock::time_point start_ = Deadline::Clock::now();
  std::optional<MemberRecord> leader_;
};

}  // namespace lockstep
