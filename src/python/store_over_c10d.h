// The store that PyTorch hands to a backend (TCPStore, FileStore, HashStore, one written in Python), as ours.
//
// c10d's stores cannot list keys or append, and FileStore polls. So the foreign store holds only a log: the counter
// "lockstep/log" is the number of entries, and "lockstep/log/<n>" is entry n. A change takes the next number, writes
// its entry, and applies all entries up to it, in order, to this process's replica (StoreState). All replicas apply the
// same changes in the same order, so that all calls have the result that they would have on one server.
//
// A process that dies between taking a number and writing its entry leaves a gap. Others fill it with an empty entry
// after kGapTimeout; a writer that was only slow finds that, and takes another number.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>

#include "lockstep/store/store.h"
#include "python/shared_log.h"

namespace lockstep::python {

inline constexpr std::chrono::milliseconds kGapTimeout{2000};

// The contract of Store. No last wills: c10d's stores cannot detect the end of a client. Calls that wait poll, at most
// every 20 ms. An exception of the foreign store becomes unavailable.
class StoreOverC10d final : public Store {
 public:
  explicit StoreOverC10d(c10::intrusive_ptr<::c10d::Store> store);

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
  Result<bool> set_last_will(const std::string&, const std::string&, Deadline) override { return false; }
  Status withdraw_last_will(const std::string&, Deadline) override { return {}; }
  std::string describe() const override;

  // The host of a TCPStore; empty for other stores.
  const std::string& host() const { return host_; }

 private:
  ChangeResult change(Change change, Deadline deadline);
  // With mutex_ held: applies what is in the log now, up to entry `limit`.
  Status catch_up(std::int64_t limit = std::numeric_limits<std::int64_t>::max());
  Status apply_next();
  void fill_gap();

  const c10::intrusive_ptr<::c10d::Store> store_;
  std::string host_;
  std::string name_;

  std::mutex mutex_;  // not held while a call waits for a key
  // Guarded by mutex_.
  StoreState state_{StoreLimits{}};
  std::int64_t applied_ = 0;                                       // the number of the last entry in state_
  ChangeResult last_;                                              // of that entry
  Deadline::Clock::time_point progress_ = Deadline::Clock::now();  // when an entry was last applied or waited for
};

}  // namespace lockstep::python
