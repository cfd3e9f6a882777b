#include "store/prefix_store.h"

#include <fmt/format.h>

namespace lockstep {

PrefixStore::PrefixStore(std::shared_ptr<Store> store, std::string prefix)
    : store_(std::move(store)), prefix_(std::move(prefix)) {}

std::vector<std::string> PrefixStore::whole(std::span<const std::string> keys) const {
  std::vector<std::string> result;
  result.reserve(keys.size());
  for (const std::string& key : keys) result.push_back(whole(key));
  return result;
}

Status PrefixStore::set(const std::string& key, const std::string& value, Deadline deadline) {
  return store_->set(whole(key), value, deadline);
}

Result<std::string> PrefixStore::get(const std::string& key, Deadline deadline) {
  return store_->get(whole(key), deadline);
}

Status PrefixStore::wait(std::span<const std::string> keys, Deadline deadline) {
  return store_->wait(whole(keys), deadline);
}

Result<std::int64_t> PrefixStore::add(const std::string& key, std::int64_t amount, Deadline deadline) {
  return store_->add(whole(key), amount, deadline);
}

Result<std::string> PrefixStore::compare_set(const std::string& key, const std::optional<std::string>& expected,
                                             const std::string& desired, Deadline deadline) {
  return store_->compare_set(whole(key), expected, desired, deadline);
}

Result<bool> PrefixStore::check(std::span<const std::string> keys, Deadline deadline) {
  return store_->check(whole(keys), deadline);
}

Result<bool> PrefixStore::remove(const std::string& key, Deadline deadline) {
  return store_->remove(whole(key), deadline);
}

Result<std::map<std::string, std::string>> PrefixStore::list(const std::string& prefix, Deadline deadline) {
  auto pairs = store_->list(whole(prefix), deadline);
  if (!pairs.ok()) return pairs;
  std::map<std::string, std::string> result;
  for (auto& [key, value] : *pairs) result.emplace_hint(result.end(), key.substr(prefix_.size()), std::move(value));
  return result;
}

Result<std::size_t> PrefixStore::append(const std::string& key, const std::string& value, Deadline deadline) {
  return store_->append(whole(key), value, deadline);
}

Result<bool> PrefixStore::set_last_will(const std::string& key, const std::string& value, Deadline deadline) {
  return store_->set_last_will(whole(key), value, deadline);
}

Status PrefixStore::withdraw_last_will(const std::string& key, Deadline deadline) {
  return store_->withdraw_last_will(whole(key), deadline);
}

std::string PrefixStore::describe() const { return fmt::format("'{}' in {}", prefix_, store_->describe()); }

}  // namespace lockstep
