#include "rendezvous/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {

Session::Session(std::unique_ptr<SessionStore> store, Agreement agreement)
    : store_(std::move(store)), agreement_(std::move(agreement)) {}

Result<std::unique_ptr<Session>> Session::join(std::shared_ptr<Store> store, const std::string& scope,
                                               const MemberRecord& self, Deadline deadline) {
  auto view = std::make_unique<SessionStore>(std::move(store), scope, self, deadline);
  auto agreement = agree(*view);
  if (!agreement.ok()) return agreement.status();
  return std::unique_ptr<Session>(new Session(std::move(view), *std::move(agreement)));
}

std::vector<std::string> Session::keys_of(const std::string& step) const {
  std::vector<std::string> keys;
  for (const auto& member : members()) keys.push_back(agreement_.outcome->key(step, member.rank));
  return keys;
}

Status Session::await(std::span<const std::string> keys, const std::string& step) {
  const Status status = agreement_.outcome->await(keys, deadline());
  if (status.code() != StatusCode::timed_out) return status;
  std::vector<std::string> missing;
  const auto there = store_->list(agreement_.outcome->key(step + "/"));
  if (!there.ok()) return there.status();
  for (const auto& member : members()) {
    if (!there->contains(agreement_.outcome->key(step, member.rank))) missing.push_back(member.describe());
  }
  return Status(StatusCode::timed_out,
                fmt::format("after {:.1f} s the ranks are not connected; step '{}' is not complete on: {}",
                            store_->elapsed().count(), step, fmt::join(missing, ", ")));
}

Result<std::vector<std::string>> Session::collect(const std::string& step) {
  const auto keys = keys_of(step);
  LOCKSTEP_RETURN_IF_ERROR(await(keys, step));
  const auto found = store_->list(agreement_.outcome->key(step + "/"));
  if (!found.ok()) return found.status();
  std::vector<std::string> values;
  for (const auto& key : keys) {
    const auto entry = found->find(key);
    if (entry == found->end()) return Status(StatusCode::internal, fmt::format("the key {} vanished", key));
    values.push_back(entry->second);
  }
  return values;
}

// Rank 0 collects all values, so that the others wait for one key instead of one for each rank.
Result<std::vector<std::string>> Session::exchange(const std::string& step, const std::string& value) {
  LOCKSTEP_RETURN_IF_ERROR(store_->set(agreement_.outcome->key(step, self().rank), value));
  const std::string all = agreement_.outcome->key(step);
  if (self().rank == 0) {
    auto values = collect(step);
    if (values.ok()) LOCKSTEP_RETURN_IF_ERROR(store_->set(all, format(*values)));
    return values;
  }
  LOCKSTEP_RETURN_IF_ERROR(await(std::span(&all, 1), step));
  const auto combined = store_->peek(all);
  if (!combined.ok()) return combined.status();
  auto values = parse_values(combined->value_or(""));
  if (values.ok() && values->size() != members().size()) {
    return Status(StatusCode::protocol_error,
                  fmt::format("step '{}' has {} values for {} ranks", step, values->size(), members().size()));
  }
  return values;
}

Status Session::complete() {
  const std::string step = "complete";
  if (self().rank != 0) {
    // The will is withdrawn last: once rank 0 knows, it may end, and its store with it.
    (void)store_->remove(SessionStore::claim_key(self().rank));
    LOCKSTEP_RETURN_IF_ERROR(store_->set(agreement_.outcome->key(step, self().rank), ""));
    agreement_.outcome->withdraw();
    return {};
  }
  LOCKSTEP_RETURN_IF_ERROR(store_->set(agreement_.outcome->key(step, 0), ""));
  const auto values = collect(step);
  if (!values.ok()) return values.status();
  agreement_.outcome->withdraw();
  (void)store_->remove(SessionStore::claim_key(0));
  const auto rest = store_->list(id() + "/");
  if (!rest.ok()) return {};
  for (const auto& [key, value] : *rest) (void)store_->remove(key);
  return {};
}

}  // namespace lockstep
