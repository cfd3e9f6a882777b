// One of our stores as c10d's: LibTorch's engines find each other through the store that the job's secret protects.
#pragma once

#include "ddp/backends/c10d/c10d_headers.h"

#if LOCKSTEP_HAS_C10D

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/store/store.h"

namespace lockstep::detail {

// Calls wait until getTimeout(), and throw lockstep::Error then, or as soon as `health` is not ok: an engine
// that waits for a peer's address must not wait for a dead peer. Thread-safe if `health` is.
class C10dStore final : public ::c10d::Store {
 public:
  using Bytes = std::vector<std::uint8_t>;
  C10dStore(std::shared_ptr<lockstep::Store> store, std::function<Status()> health);

  void set(const std::string& key, const Bytes& value) override;
  Bytes get(const std::string& key) override;
  // As c10d's TCPStore: an empty `expected` means an absent key; returns the value of the key afterwards, or
  // `expected` if it is absent.
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  // Pure virtual in LibTorch 2.9 and later, and absent before: so it overrides without the keyword.
  c10::intrusive_ptr<::c10d::Store> clone();

 private:
  Deadline deadline() const;

  const std::shared_ptr<lockstep::Store> store_;
  const std::function<Status()> health_;
};

}  // namespace lockstep::detail

#endif
