// A store for the threads of one process.
#pragma once

#include "lockstep/store/store.h"

namespace lockstep {

class MemoryStore final : public Store {
 public:
  explicit MemoryStore(const StoreLimits& limits = {});
  ~MemoryStore() override;  // no call may be waiting

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
  // Returns false: the threads of one process end together.
  Result<bool> set_last_will(const std::string& key, const std::string& value, Deadline deadline) override;
  Status withdraw_last_will(const std::string& key, Deadline deadline) override;
  std::string describe() const override;

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace lockstep
