// The keys of a store and the waits for them: the state machine behind MemoryStore,
// TcpStoreServer and FileStore's replica. Not thread-safe; never blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/store/store.h"

namespace lockstep {

class StoreState {
 public:
  explicit StoreState(const StoreLimits& limits) : limits_(limits) {}

  // These implement Store; an error leaves everything unchanged. A change runs the callbacks of the waiters that it
  // completes before it returns.
  Status set(const std::string& key, const std::string& value);
  Result<std::int64_t> add(const std::string& key, std::int64_t amount);
  Result<std::string> compare_set(const std::string& key, const std::optional<std::string>& expected,
                                  const std::string& desired);
  bool remove(const std::string& key);
  Result<std::size_t> append(const std::string& key, const std::string& value);

  // nullptr if absent; valid until the next change.
  const std::string* find(const std::string& key) const;
  bool has_all(std::span<const std::string> keys) const;
  // In the order given.
  std::vector<std::string> missing(std::span<const std::string> keys) const;
  std::map<std::string, std::string> list(const std::string& prefix) const;

  // `on_ready` runs once, inside the change after which all keys exist; it must not change the
  // state. At least one key must be missing now.
  using WaiterId = std::uint64_t;
  WaiterId add_waiter(std::vector<std::string> keys, std::function<void()> on_ready);
  // Does nothing if it has already run.
  void remove_waiter(WaiterId id);

  const StoreLimits& limits() const { return limits_; }

 private:
  struct Waiter {
    std::vector<std::string> keys;
    std::size_t position = 0;  // keys_[position] is missing, and the waiter is in its queue
    std::function<void()> on_ready;
  };

  Status check_room(const std::string& key, std::size_t new_value_bytes) const;
  void store(const std::string& key, std::string value);
  void run_waiters(const std::string& key);
  // Moves the waiter to the queue of a missing key; false if there is none.
  bool find_missing(Waiter& waiter) const;

  const StoreLimits limits_;
  std::map<std::string, std::string, std::less<>> values_;
  std::size_t total_bytes_ = 0;
  WaiterId next_waiter_ = 1;
  std::unordered_map<WaiterId, Waiter> waiters_;
  std::unordered_map<std::string, std::vector<WaiterId>> queues_;  // by the key that is missing
};

// "timed out waiting for keys 'a', 'b' (and 7 more) in the store at ...".
Status missing_keys_error(std::span<const std::string> missing, const std::string& store);
// For messages: quoted, shortened, printable.
std::string key_text(const std::string& key);

}  // namespace lockstep
