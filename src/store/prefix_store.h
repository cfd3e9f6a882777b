// A view of another store: every key gets a prefix, so that two users of one store do not collide.
#pragma once

#include "lockstep/store/store.h"

namespace lockstep {

// Keys passed and returned are without the prefix; error messages show them with it. The prefix
// counts towards the other store's limits. Last wills work as in the other store.
class PrefixStore final : public Store {
 public:
  // The prefix is put before keys as it is; end it with "/" for a separator.
  PrefixStore(std::shared_ptr<Store> store, std::string prefix);

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
  std::string whole(const std::string& key) const { return prefix_ + key; }
  std::vector<std::string> whole(std::span<const std::string> keys) const;

  std::shared_ptr<Store> store_;
  std::string prefix_;
};

}  // namespace lockstep
