#include "elastic/guarded_store.h"

namespace lockstep::elastic {

void GuardedStore::close(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (closed_.ok()) closed_ = Status(StatusCode::peer_lost, reason);
}

Status GuardedStore::status() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

Status GuardedStore::set(const std::string& key, const std::string& value, Deadline deadline) {
  LOCKSTEP_RETURN_IF_ERROR(status());
  return store_->set(key, value, deadline);
}

Result<std::string> GuardedStore::get(const std::string& key, Deadline deadline) {
  LOCKSTEP_RETURN_IF_ERROR(status());
  return store_->get(key, deadline);
}

Status GuardedStore::wait(std::span<const std::string> keys, Deadline deadline) {
  LOCKSTEP_RETURN_IF_ERROR(status());
  return store_->wait(keys, deadline);
}

Result<std::int64_t> GuardedStore::add(const std::string& key, std::int64_t amount, Deadline deadline) {
  LOCKSTEP_RETURN_IF_ERROR(status());
  return store_->add(key, amount, deadline);
}

Result<std::string> GuardedStore::compare_set(const std::string& key, const std::optional<std::string>& expected,
                                              const std::string& desired, Deadline deadline) {
  LOCKSTEP_RETURN_IF_ERROR(status());
  return store_->compare_set(key, expected, desired, deadline);
}

Result<bool> GuardedStore::check(std::span<const std::string> keys, Deadline deadline) {
  LOCKSTEP_RETURN_IF_ERROR(status());
  return store_->check(keys, deadline);
}

Result<bool> GuardedStore::remove(const std::string& key, Deadline deadline) {
  LOCKSTEP_RETURN_IF_ERROR(status());
  return store_->remove(key, deadline);
}

Result<std::map<std::string, std::string>> GuardedStore::list(const std::string& prefix, Deadline deadline) {
  LOCKSTEP_RETURN_IF_ERROR(status());
  return store_->list(prefix, deadline);
}

Result<std::size_t> GuardedStore::append(const std::string& key, const std::string& value, Deadline deadline) {
  LOCKSTEP_RETURN_IF_ERROR(status());
  return store_->append(key, value, deadline);
}

Result<bool> GuardedStore::set_last_will(const std::string& key, const std::string& value, Deadline deadline) {
  LOCKSTEP_RETURN_IF_ERROR(status());
  return store_->set_last_will(key, value, deadline);
}

Status GuardedStore::withdraw_last_will(const std::string& key, Deadline deadline) {
  LOCKSTEP_RETURN_IF_ERROR(status());
  return store_->withdraw_last_will(key, deadline);
}

}  // namespace lockstep::elastic
