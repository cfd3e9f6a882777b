#include "store/file/file_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "store/file/file_log.h"
#include "store/file/file_record.h"
#include "store/store_state.h"

namespace lockstep {

using file_record::Change;
using file_record::Record;

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kFirstPollPause = 1ms;
constexpr std::chrono::milliseconds kLongestPollPause = 20ms;

using Outcome = Result<std::optional<Record>>;

Outcome changed(Change change, const std::string& key, std::string value) {
  return std::optional(Record{change, key, std::move(value)});
}

Outcome unchanged() { return std::optional<Record>(); }

}  // namespace

Result<std::shared_ptr<FileStore>> FileStore::open(const std::string& path, const StoreLimits& limits) {
  auto log = Log::open(path, limits);
  if (!log.ok()) return log.status();
  return std::shared_ptr<FileStore>(new FileStore(std::move(*log)));
}

FileStore::FileStore(std::unique_ptr<Log> log) : log_(std::move(log)) {}
FileStore::~FileStore() = default;

Status FileStore::set(const std::string& key, const std::string& value, Deadline deadline) {
  return log_->change(
      [&](StoreState& state) -> Outcome {
        LOCKSTEP_RETURN_IF_ERROR(state.set(key, value));
        return changed(Change::set, key, value);
      },
      deadline);
}

Status FileStore::await(std::span<const std::string> keys, std::string* first_value, Deadline deadline) {
  std::chrono::milliseconds pause = kFirstPollPause;
  while (true) {
    std::vector<std::string> missing;
    LOCKSTEP_RETURN_IF_ERROR(log_->look([&](const StoreState& state) {
      missing = state.missing(keys);
      if (missing.empty() && first_value != nullptr) *first_value = *state.find(keys.front());
    }));
    if (missing.empty()) return {};
    if (deadline.expired()) return missing_keys_error(missing, describe());
    std::this_thread::sleep_for(std::min<Deadline::Duration>(pause, deadline.remaining()));
    pause = std::min(2 * pause, kLongestPollPause);
  }
}

Result<std::string> FileStore::get(const std::string& key, Deadline deadline) {
  std::string value;
  LOCKSTEP_RETURN_IF_ERROR(await({&key, 1}, &value, deadline));
  return value;
}

Status FileStore::wait(std::span<const std::string> keys, Deadline deadline) { return await(keys, nullptr, deadline); }

Result<std::int64_t> FileStore::add(const std::string& key, std::int64_t amount, Deadline deadline) {
  std::int64_t sum = 0;
  LOCKSTEP_RETURN_IF_ERROR(log_->change(
      [&](StoreState& state) -> Outcome {
        const auto result = state.add(key, amount);
        if (!result.ok()) return result.status();
        sum = *result;
        return changed(Change::set, key, std::to_string(sum));
      },
      deadline));
  return sum;
}

Result<std::string> FileStore::compare_set(const std::string& key, const std::optional<std::string>& expected,
                                           const std::string& desired, Deadline deadline) {
  std::string after;
  LOCKSTEP_RETURN_IF_ERROR(log_->change(
      [&](StoreState& state) -> Outcome {
        const std::string* before = state.find(key);
        const bool exchanges = before == nullptr ? !expected.has_value() : expected == *before;
        auto result = state.compare_set(key, expected, desired);
        if (!result.ok()) return result.status();
        after = std::move(*result);
        return exchanges ? changed(Change::set, key, desired) : unchanged();
      },
      deadline));
  return after;
}

Result<bool> FileStore::check(std::span<const std::string> keys, Deadline) {
  bool all = false;
  LOCKSTEP_RETURN_IF_ERROR(log_->look([&](const StoreState& state) { all = state.has_all(keys); }));
  return all;
}

Result<bool> FileStore::remove(const std::string& key, Deadline deadline) {
  bool existed = false;
  LOCKSTEP_RETURN_IF_ERROR(log_->change(
      [&](StoreState& state) -> Outcome {
        existed = state.remove(key);
        return existed ? changed(Change::remove, key, "") : unchanged();
      },
      deadline));
  return existed;
}

Result<std::map<std::string, std::string>> FileStore::list(const std::string& prefix, Deadline) {
  std::map<std::string, std::string> pairs;
  LOCKSTEP_RETURN_IF_ERROR(log_->look([&](const StoreState& state) { pairs = state.list(prefix); }));
  return pairs;
}

Result<std::size_t> FileStore::append(const std::string& key, const std::string& value, Deadline deadline) {
  std::size_t length = 0;
  LOCKSTEP_RETURN_IF_ERROR(log_->change(
      [&](StoreState& state) -> Outcome {
        const auto result = state.append(key, value);
        if (!result.ok()) return result.status();
        length = *result;
        return changed(Change::append, key, value);
      },
      deadline));
  return length;
}

Result<bool> FileStore::set_last_will(const std::string&, const std::string&, Deadline) { return false; }

Status FileStore::withdraw_last_will(const std::string&, Deadline) { return {}; }

std::string FileStore::describe() const { return fmt::format("the store in {}", log_->path()); }

}  // namespace lockstep
