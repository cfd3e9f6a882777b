// A view of a store that can be closed; after that, every call fails with the given reason. It ends the forming of a
// group when a member is lost that the rendezvous has not detected yet.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "lockstep/store/store.h"

namespace lockstep::elastic {

// Thread-safe. A call that is already waiting when the store is closed continues to wait.
class GuardedStore final : public Store {
 public:
  explicit GuardedStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  // Only the first reason is kept.
  void close(const std::string& reason);

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
  std::string describe() const override { return store_->describe(); }

 private:
  Status status() const;

  const std::shared_ptr<Store> store_;
  mutable std::mutex mutex_;
  Status closed_;  // guarded by mutex_
};

}  // namespace lockstep::elastic
