#include "ddp/backends/c10d/c10d_store.h"

#if LOCKSTEP_HAS_C10D

namespace lockstep::detail {

namespace {

// How often a wait checks the health of the group.
constexpr std::chrono::milliseconds kHealthInterval{200};

std::string text_of(const C10dStore::Bytes& bytes) { return {bytes.begin(), bytes.end()}; }
C10dStore::Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

C10dStore::C10dStore(std::shared_ptr<lockstep::Store> store, std::function<Status()> health)
    : store_(std::move(store)), health_(std::move(health)) {}

Deadline C10dStore::deadline() const { return Deadline::after(timeout_); }

void C10dStore::set(const std::string& key, const Bytes& value) {
  throw_if_error(store_->set(key, text_of(value), deadline()));
}

C10dStore::Bytes C10dStore::get(const std::string& key) {
  wait({key});
  return bytes_of(value_or_throw(store_->get(key, deadline())));
}

C10dStore::Bytes C10dStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  const std::string wanted = text_of(desired);
  if (expected.empty()) {
    const std::string now = value_or_throw(store_->compare_set(key, std::nullopt, wanted, deadline()));
    if (!now.empty() || wanted.empty()) return bytes_of(now);
  }
  const auto now = store_->compare_set(key, text_of(expected), wanted, deadline());
  if (now.status().code() == StatusCode::not_found) return expected;
  return bytes_of(value_or_throw(now));
}

std::int64_t C10dStore::add(const std::string& key, std::int64_t amount) {
  return value_or_throw(store_->add(key, amount, deadline()));
}

bool C10dStore::deleteKey(const std::string& key) { return value_or_throw(store_->remove(key, deadline())); }

bool C10dStore::check(const std::vector<std::string>& keys) { return value_or_throw(store_->check(keys, deadline())); }

std::int64_t C10dStore::getNumKeys() {
  return static_cast<std::int64_t>(value_or_throw(store_->list("", deadline())).size());
}

void C10dStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void C10dStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const Deadline whole = timeout == kNoTimeout ? deadline() : Deadline::after(timeout);
  for (;;) {
    const Status status = store_->wait(keys, whole.earlier(Deadline::after(kHealthInterval)));
    if (status.ok()) return;
    if (status.code() != StatusCode::timed_out || whole.expired()) throw Error(status);
    throw_if_error(health_());
  }
}

c10::intrusive_ptr<::c10d::Store> C10dStore::clone() {
  auto copy = c10::make_intrusive<C10dStore>(store_, health_);
  copy->setTimeout(timeout_);
  return copy;
}

}  // namespace lockstep::detail

#endif
