#include "python/store_over_c10d.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <functional>
#include <thread>

#include "base/random.h"

namespace lockstep::python {
namespace {

using namespace std::chrono_literals;

constexpr const char* kLog = "lockstep/log";
constexpr auto kFirstPause = 200us;
constexpr auto kLongestPause = 20000us;

using ForeignBytes = std::vector<std::uint8_t>;

std::string entry_key(std::int64_t index) { return fmt::format("{}/{}", kLog, index); }
ForeignBytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const ForeignBytes& bytes) { return {bytes.begin(), bytes.end()}; }

Status guarded(const std::string& store, const std::function<Status()>& calls) {
  try {
    return calls();
  } catch (const c10::Error& error) {
    return Status(StatusCode::unavailable, fmt::format("{} failed: {}", store, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return Status(StatusCode::unavailable, fmt::format("{} failed: {}", store, error.what()));
  }
}

// Polling: quick at first, because most waits are short.
class Pause {
 public:
  void sleep(Deadline deadline) {
    std::this_thread::sleep_for(std::min<Deadline::Duration>(next_, deadline.remaining()));
    next_ = std::min<std::chrono::microseconds>(next_ * 2, kLongestPause);
  }

 private:
  std::chrono::microseconds next_ = kFirstPause;
};

}  // namespace

StoreOverC10d::StoreOverC10d(c10::intrusive_ptr<::c10d::Store> store)
    : store_(std::move(store)), name_("PyTorch's store") {
  c10::intrusive_ptr<::c10d::Store> inner = store_;
  while (auto* prefix = dynamic_cast<::c10d::PrefixStore*>(inner.get())) inner = prefix->getUnderlyingStore();
  if (const auto* tcp = dynamic_cast<const ::c10d::TCPStore*>(inner.get())) {
    host_ = tcp->getHost();
    name_ = fmt::format("PyTorch's TCPStore at {}:{}", host_, tcp->getPort());
  } else if (auto* file = dynamic_cast<::c10d::FileStore*>(inner.get())) {
    name_ = fmt::format("PyTorch's FileStore in {}", file->getPath());
  }
}

std::string StoreOverC10d::describe() const { return name_; }

Status StoreOverC10d::apply_next() {
  const auto change = parse_change(text_of(store_->get(entry_key(applied_ + 1))));
  if (!change.ok()) return change.status();
  last_ = apply(*change, state_);
  ++applied_;
  progress_ = Deadline::Clock::now();
  return {};
}

Status StoreOverC10d::catch_up(std::int64_t limit) {
  return guarded(name_, [&]() -> Status {
    while (applied_ < limit && store_->check({entry_key(applied_ + 1)})) LOCKSTEP_RETURN_IF_ERROR(apply_next());
    if (applied_ < limit && progress_ + kGapTimeout < Deadline::Clock::now()) fill_gap();
    return {};
  });
}

void StoreOverC10d::fill_gap() {
  progress_ = Deadline::Clock::now();
  if (store_->add(kLog, 0) <= applied_) return;
  const std::string nothing = format_change({.nonce = random_hex(8)});
  store_->compareSet(entry_key(applied_ + 1), {}, bytes_of(nothing));
}

ChangeResult StoreOverC10d::change(Change change, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  change.nonce = random_hex(8);
  const std::string entry = format_change(change);
  while (true) {
    std::int64_t index = 0;
    bool written = false;
    Status status = guarded(name_, [&]() -> Status {
      index = store_->add(kLog, 1);
      written = text_of(store_->compareSet(entry_key(index), {}, bytes_of(entry))) == entry;
      return {};
    });
    Pause pause;
    while (status.ok() && applied_ < index) {
      status = catch_up(index);
      if (!status.ok() || applied_ == index) break;
      if (deadline.expired()) {
        status = Status(StatusCode::timed_out, "timed out waiting for a process that is writing to " + name_);
      }
      pause.sleep(deadline);
    }
    if (!status.ok()) return {.status = std::move(status)};
    if (written) return last_;
  }
}

Status StoreOverC10d::set(const std::string& key, const std::string& value, Deadline deadline) {
  return change({.kind = ChangeKind::set, .key = key, .value = value}, deadline).status;
}

Result<std::int64_t> StoreOverC10d::add(const std::string& key, std::int64_t amount, Deadline deadline) {
  const auto result = change({.kind = ChangeKind::add, .key = key, .amount = amount}, deadline);
  if (!result.status.ok()) return result.status;
  return result.number;
}

Result<std::string> StoreOverC10d::compare_set(const std::string& key, const std::optional<std::string>& expected,
                                               const std::string& desired, Deadline deadline) {
  auto result = change({.kind = ChangeKind::compare_set, .key = key, .value = desired, .expected = expected}, deadline);
  if (!result.status.ok()) return result.status;
  return std::move(result.value);
}

Result<bool> StoreOverC10d::remove(const std::string& key, Deadline deadline) {
  const auto result = change({.kind = ChangeKind::remove, .key = key}, deadline);
  if (!result.status.ok()) return result.status;
  return result.number != 0;
}

Result<std::size_t> StoreOverC10d::append(const std::string& key, const std::string& value, Deadline deadline) {
  const auto result = change({.kind = ChangeKind::append, .key = key, .value = value}, deadline);
  if (!result.status.ok()) return result.status;
  return static_cast<std::size_t>(result.number);
}

Result<bool> StoreOverC10d::check(std::span<const std::string> keys, Deadline) {
  const std::lock_guard lock(mutex_);
  LOCKSTEP_RETURN_IF_ERROR(catch_up());
  return state_.has_all(keys);
}

Result<std::map<std::string, std::string>> StoreOverC10d::list(const std::string& prefix, Deadline) {
  const std::lock_guard lock(mutex_);
  LOCKSTEP_RETURN_IF_ERROR(catch_up());
  return state_.list(prefix);
}

Result<std::string> StoreOverC10d::get(const std::string& key, Deadline deadline) {
  Pause pause;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      LOCKSTEP_RETURN_IF_ERROR(catch_up());
      if (const std::string* value = state_.find(key)) return *value;
    }
    if (deadline.expired()) return missing_keys_error({&key, 1}, name_);
    pause.sleep(deadline);
  }
}

Status StoreOverC10d::wait(std::span<const std::string> keys, Deadline deadline) {
  Pause pause;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      LOCKSTEP_RETURN_IF_ERROR(catch_up());
      if (state_.has_all(keys)) return {};
      if (deadline.expired()) return missing_keys_error(state_.missing(keys), name_);
    }
    pause.sleep(deadline);
  }
}

}  // namespace lockstep::python
