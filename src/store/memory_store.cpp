#include "store/memory_store.h"

#include <condition_variable>
#include <mutex>

#include "store/store_state.h"

namespace lockstep {

struct MemoryStore::Shared {
  explicit Shared(const StoreLimits& limits) : state(limits) {}

  // With the mutex held: waits until all keys exist.
  Status wait(std::unique_lock<std::mutex>& lock, std::span<const std::string> keys, Deadline deadline,
              const std::string& store) {
    if (state.has_all(keys)) return {};
    bool ready = false;
    std::condition_variable changed;  // notified with the mutex held, so it outlives the notification
    const auto waiter = state.add_waiter({keys.begin(), keys.end()}, [&] {
      ready = true;
      changed.notify_one();
    });
    if (changed.wait_until(lock, deadline.when(), [&] { return ready; })) return {};
    const auto missing = state.missing(keys);
    state.remove_waiter(waiter);
    return missing_keys_error(missing, store);
  }

  std::mutex mutex;
  StoreState state;  // guarded by mutex
};

MemoryStore::MemoryStore(const StoreLimits& limits) : shared_(std::make_unique<Shared>(limits)) {}
MemoryStore::~MemoryStore() = default;

Status MemoryStore::set(const std::string& key, const std::string& value, Deadline) {
  const std::lock_guard lock(shared_->mutex);
  return shared_->state.set(key, value);
}

Result<std::string> MemoryStore::get(const std::string& key, Deadline deadline) {
  std::unique_lock lock(shared_->mutex);
  // Checked again after waking: the key may have been removed before this thread had the mutex.
  while (true) {
    LOCKSTEP_RETURN_IF_ERROR(shared_->wait(lock, {&key, 1}, deadline, describe()));
    if (const std::string* value = shared_->state.find(key)) return *value;
  }
}

Status MemoryStore::wait(std::span<const std::string> keys, Deadline deadline) {
  std::unique_lock lock(shared_->mutex);
  return shared_->wait(lock, keys, deadline, describe());
}

Result<std::int64_t> MemoryStore::add(const std::string& key, std::int64_t amount, Deadline) {
  const std::lock_guard lock(shared_->mutex);
  return shared_->state.add(key, amount);
}

Result<std::string> MemoryStore::compare_set(const std::string& key, const std::optional<std::string>& expected,
                                             const std::string& desired, Deadline) {
  const std::lock_guard lock(shared_->mutex);
  return shared_->state.compare_set(key, expected, desired);
}

Result<bool> MemoryStore::check(std::span<const std::string> keys, Deadline) {
  const std::lock_guard lock(shared_->mutex);
  return shared_->state.has_all(keys);
}

Result<bool> MemoryStore::remove(const std::string& key, Deadline) {
  const std::lock_guard lock(shared_->mutex);
  return shared_->state.remove(key);
}

Result<std::map<std::string, std::string>> MemoryStore::list(const std::string& prefix, Deadline) {
  const std::lock_guard lock(shared_->mutex);
  return shared_->state.list(prefix);
}

Result<std::size_t> MemoryStore::append(const std::string& key, const std::string& value, Deadline) {
  const std::lock_guard lock(shared_->mutex);
  return shared_->state.append(key, value);
}

Result<bool> MemoryStore::set_last_will(const std::string&, const std::string&, Deadline) { return false; }

Status MemoryStore::withdraw_last_will(const std::string&, Deadline) { return {}; }

std::string MemoryStore::describe() const { return "the store in memory"; }

}  // namespace lockstep
