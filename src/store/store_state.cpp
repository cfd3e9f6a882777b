#include "store/store_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/printable.h"

namespace lockstep {
namespace {

constexpr std::size_t kShownKeys = 8;
constexpr std::size_t kShownKeyBytes = 64;

Status exhausted(const std::string& key, std::string_view what, const char* limit, std::size_t value) {
  return Status(StatusCode::resource_exhausted,
                fmt::format("key {}: {}; the store's limit {} is {}", key_text(key), what, limit, value));
}

Result<std::int64_t> parse_counter(const std::string& key, const std::string& value) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size()) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("cannot add to key {}: its value {} is not a 64-bit decimal number", key_text(key),
                              key_text(value)));
  }
  return number;
}

}  // namespace

std::string key_text(const std::string& key) {
  const bool whole = key.size() <= kShownKeyBytes;
  return fmt::format("'{}{}'", printable(std::string_view(key).substr(0, kShownKeyBytes)), whole ? "" : "...");
}

Status missing_keys_error(std::span<const std::string> missing, const std::string& store) {
  std::string names;
  for (const std::string& key : missing.first(std::min(missing.size(), kShownKeys))) {
    if (!names.empty()) names += ", ";
    names += key_text(key);
  }
  if (missing.size() > kShownKeys) names += fmt::format(" and {} more", missing.size() - kShownKeys);
  return Status(StatusCode::timed_out,
                fmt::format("timed out waiting for {} {} in {}", missing.size() == 1 ? "key" : "keys", names, store));
}

Status StoreState::check_room(const std::string& key, std::size_t new_value_bytes) const {
  if (key.size() > limits_.max_key_bytes) {
    return exhausted(key, fmt::format("the key has {} bytes", key.size()), "max_key_bytes", limits_.max_key_bytes);
  }
  if (new_value_bytes > limits_.max_value_bytes) {
    return exhausted(key, fmt::format("the value would have {} bytes", new_value_bytes), "max_value_bytes",
                     limits_.max_value_bytes);
  }
  const auto old = values_.find(key);
  if (old == values_.end() && values_.size() >= limits_.max_keys) {
    return exhausted(key, fmt::format("there are {} keys already", values_.size()), "max_keys", limits_.max_keys);
  }
  const std::size_t old_bytes = old == values_.end() ? 0 : key.size() + old->second.size();
  const std::size_t total = total_bytes_ - old_bytes + key.size() + new_value_bytes;
  if (total > limits_.max_total_bytes) {
    return exhausted(key, fmt::format("all keys and values would have {} bytes", total), "max_total_bytes",
                     limits_.max_total_bytes);
  }
  return {};
}

void StoreState::store(const std::string& key, std::string value) {
  auto [entry, fresh] = values_.try_emplace(key);
  total_bytes_ += fresh ? key.size() : 0;
  total_bytes_ += value.size();
  total_bytes_ -= entry->second.size();
  entry->second = std::move(value);
  if (fresh) run_waiters(key);
}

Status StoreState::set(const std::string& key, const std::string& value) {
  LOCKSTEP_RETURN_IF_ERROR(check_room(key, value.size()));
  store(key, value);
  return {};
}

Result<std::int64_t> StoreState::add(const std::string& key, std::int64_t amount) {
  std::int64_t sum = 0;
  if (const std::string* value = find(key)) {
    const auto counter = parse_counter(key, *value);
    if (!counter.ok()) return counter;
    sum = *counter;
  }
  if (__builtin_add_overflow(sum, amount, &sum)) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("adding {} to key {} would leave the range of 64 bits", amount, key_text(key)));
  }
  std::string text = std::to_string(sum);
  LOCKSTEP_RETURN_IF_ERROR(check_room(key, text.size()));
  store(key, std::move(text));
  return sum;
}

Result<std::string> StoreState::compare_set(const std::string& key, const std::optional<std::string>& expected,
                                            const std::string& desired) {
  const std::string* value = find(key);
  if (value == nullptr && expected.has_value()) {
    return Status(StatusCode::not_found, fmt::format("key {} does not exist, but a value was expected", key_text(key)));
  }
  if (value != nullptr && (!expected.has_value() || *value != *expected)) return *value;
  LOCKSTEP_RETURN_IF_ERROR(set(key, desired));
  return desired;
}

bool StoreState::remove(const std::string& key) {
  const auto entry = values_.find(key);
  if (entry == values_.end()) return false;
  total_bytes_ -= key.size() + entry->second.size();
  values_.erase(entry);
  return true;
}

Result<std::size_t> StoreState::append(const std::string& key, const std::string& value) {
  const auto entry = values_.find(key);
  const std::size_t old_bytes = entry == values_.end() ? 0 : entry->second.size();
  LOCKSTEP_RETURN_IF_ERROR(check_room(key, old_bytes + value.size()));
  if (entry == values_.end()) {
    store(key, value);
  } else {
    entry->second += value;
    total_bytes_ += value.size();
  }
  return old_bytes + value.size();
}

const std::string* StoreState::find(const std::string& key) const {
  const auto entry = values_.find(key);
  return entry == values_.end() ? nullptr : &entry->second;
}

bool StoreState::has_all(std::span<const std::string> keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return values_.contains(key); });
}

std::vector<std::string> StoreState::missing(std::span<const std::string> keys) const {
  std::vector<std::string> result;
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(result),
               [&](const std::string& key) { return !values_.contains(key); });
  return result;
}

std::map<std::string, std::string> StoreState::list(const std::string& prefix) const {
  std::map<std::string, std::string> result;
  for (auto entry = values_.lower_bound(prefix); entry != values_.end() && entry->first.starts_with(prefix); ++entry) {
    result.emplace_hint(result.end(), *entry);
  }
  return result;
}

bool StoreState::find_missing(Waiter& waiter) const {
  // Checks all keys, starting at its position: a key that existed before may have been removed since.
  for (std::size_t i = 0; i < waiter.keys.size(); ++i) {
    const std::size_t position = (waiter.position + i) % waiter.keys.size();
    if (values_.contains(waiter.keys[position])) continue;
    waiter.position = position;
    return true;
  }
  return false;
}

StoreState::WaiterId StoreState::add_waiter(std::vector<std::string> keys, std::function<void()> on_ready) {
  const WaiterId id = next_waiter_++;
  Waiter& waiter = waiters_[id];
  waiter = {std::move(keys), 0, std::move(on_ready)};
  find_missing(waiter);
  queues_[waiter.keys[waiter.position]].push_back(id);
  return id;
}

void StoreState::remove_waiter(WaiterId id) {
  const auto found = waiters_.find(id);
  if (found == waiters_.end()) return;
  const auto queue = queues_.find(found->second.keys[found->second.position]);
  std::erase(queue->second, id);
  if (queue->second.empty()) queues_.erase(queue);
  waiters_.erase(found);
}

void StoreState::run_waiters(const std::string& key) {
  auto queue = queues_.extract(key);
  if (queue.empty()) return;
  for (const WaiterId id : queue.mapped()) {
    const auto found = waiters_.find(id);
    if (find_missing(found->second)) {
      queues_[found->second.keys[found->second.position]].push_back(id);
      continue;
    }
    const auto on_ready = std::move(found->second.on_ready);
    waiters_.erase(found);
    on_ready();
  }
}

}  // namespace lockstep
