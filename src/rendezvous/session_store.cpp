#include "rendezvous/session_store.h"

#include "store/read_now.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kGrace{1000};

// The length keeps the keys of scope "a" out of a list of those of scope "a/b".
std::string prefix_of(const std::string& scope) {
  return fmt::format("lockstep/rendezvous/{}:{}/", scope.size(), scope);
}

}  // namespace

SessionStore::SessionStore(std::shared_ptr<Store> store, const std::string& scope, MemberRecord self, Deadline deadline)
    : whole_store_(std::move(store)),
      store_(whole_store_, prefix_of(scope)),
      scope_(scope),
      self_(std::move(self)),
      deadline_(deadline) {}

std::string SessionStore::claim_key(int rank) { return fmt::format("claim/{}", rank); }
std::string SessionStore::gone_key(const std::string& nonce) { return "gone/" + nonce; }
std::string SessionStore::invitation_key(const std::string& nonce) { return "invitation/" + nonce; }

std::chrono::milliseconds SessionStore::check_interval(std::chrono::milliseconds interval) const {
  const std::chrono::milliseconds for_all(std::min(self_.world_size, 500));
  return std::max(interval, for_all);
}

Deadline SessionStore::operation_deadline() const {
  return Deadline::at(std::max(deadline_.when(), Deadline::after(kGrace).when()));
}

Status SessionStore::explain(const Status& status) const {
  switch (status.code()) {
    case StatusCode::peer_lost:
    case StatusCode::unavailable:
    case StatusCode::closed:
      return Status(StatusCode::peer_lost,
                    fmt::format("lost {} while the group was being formed, so the process that serves it ({} or the "
                                "launcher) has ended or cannot be reached; check its log ({})",
                                describe(), leader_ ? leader_->describe() : "rank 0", status.message()));
    default: return status;
  }
}

Status SessionStore::set(const std::string& key, const std::string& value) {
  return explain(store_.set(key, value, operation_deadline()));
}

Status SessionStore::append(const std::string& key, const std::string& value) {
  return explain(store_.append(key, value, operation_deadline()).status());
}

Result<std::string> SessionStore::set_if_absent(const std::string& key, const std::string& value) {
  auto result = store_.compare_set(key, std::nullopt, value, operation_deadline());
  if (!result.ok()) return explain(result.status());
  return result;
}

Status SessionStore::remove(const std::string& key) {
  return explain(store_.remove(key, operation_deadline()).status());
}

Result<std::optional<std::string>> SessionStore::peek(const std::string& key) {
  auto value = read_now(store_, key, operation_deadline());
  if (!value.ok()) return explain(value.status());
  return value;
}

Result<std::map<std::string, std::string>> SessionStore::list(const std::string& prefix) {
  auto result = store_.list(prefix, operation_deadline());
  if (!result.ok()) return explain(result.status());
  return result;
}

Result<bool> SessionStore::await(std::span<const std::string> keys, std::chrono::milliseconds slice) {
  const Status status = store_.wait(keys, Deadline::after(slice));
  if (status.ok()) return true;
  if (status.code() == StatusCode::timed_out) return false;
  return explain(status);
}

Result<std::optional<std::string>> SessionStore::await(const std::string& key, std::chrono::milliseconds slice) {
  auto value = store_.get(key, Deadline::after(slice));
  if (value.ok()) return std::optional<std::string>(*std::move(value));
  if (value.status().code() == StatusCode::timed_out) return std::optional<std::string>();
  return explain(value.status());
}

Result<bool> SessionStore::set_last_will(const std::string& key, const std::string& value) {
  auto result = store_.set_last_will(key, value, operation_deadline());
  if (!result.ok()) return explain(result.status());
  return result;
}

Status SessionStore::withdraw_last_will(const std::string& key) {
  return explain(store_.withdraw_last_will(key, operation_deadline()));
}

}  // namespace lockstep
