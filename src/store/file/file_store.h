// A store in a file that all processes can open: on one host, or on a shared disk whose flock(2)
// works between hosts.
#pragma once

#include "lockstep/store/store.h"

namespace lockstep {

// The file is a log of changes (docs/wire_format.md). When most of it is out of date, it is replaced by a shorter one;
// FileStore never deletes it.
// Any number of processes and threads may use it at the same time. A record that a crash left half
// written is ignored, and the next writer overwrites it. Calls that wait poll the file, at most every
// 20 ms. There are no last wills, because a file cannot detect that a process ends.
//
// A file that is not a store is refused (protocol_error) and left unchanged. If the file is deleted
// while in use, calls return unavailable.
class FileStore final : public Store {
 public:
  // Creates the file (mode 0600) if there is none. Its directory must exist.
  static Result<std::shared_ptr<FileStore>> open(const std::string& path, const StoreLimits& limits = {});
  ~FileStore() override;

  Status set(const std::string& key, const std::string& value, Deadline deadline) override;
  Result<std::string> get(const std::string& key, Deadline deadline) override;
  Status wait(std::span<const std::string> keys, Deadline deadline) override;
  Result<std::int64_t> add(const std::string& key, std::int64_t amount, Deadline deadline) override;
  Result<std::string> compare_set(const std::string& key, const std::optional<std::string>& expected,
                                  const std::string& desired, Deadline deadline) override;
  Result<bool> check(std::span<const std::string> keys, Deadline deadline) override;
  Result<bool> remove(const std::string& key, Deadline deadline) override;
  Result<std::map<std::string, std::string>> list(const std::string& prefix, Deadline deadline) override;
  Result<std::size_t> append(const std::string& key, const std::string& value, Deadline deadline) override;
  Result<bool> set_last_will(const std::string& key, const std::string& value, Deadline deadline) override;
  Status withdraw_last_will(const std::string& key, Deadline deadline) override;
  std::string describe() const override;

 private:
  class Log;
  explicit FileStore(std::unique_ptr<Log> log);
  // Waits until all keys exist; stores the value of the first one in `first_value` unless that is null.
  Status await(std::span<const std::string> keys, std::string* first_value, Deadline deadline);

  std::unique_ptr<Log> log_;
};

}  // namespace lockstep
