// A key-value store through which ranks find each other. For small values and few operations: addresses, counters,
// votes.
//
// stores.h creates those that Lockstep has; a program may implement its own. Unlike the rest of the public interface,
// calls return errors instead of throwing them: what a failure means depends on the caller, and most callers are the
// engine.
//
// All calls may come from any thread. A call that waits does so until its deadline and then
// returns timed_out, naming the missing keys. A failed call has changed nothing, except that a write
// whose connection broke may have taken effect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep {

// Larger keys, values or stores are refused with resource_exhausted.
struct StoreLimits {
  std::size_t max_key_bytes = 4096;
  std::size_t max_value_bytes = std::size_t{16} << 20;
  std::size_t max_keys = std::size_t{1} << 20;
  std::size_t max_total_bytes = std::size_t{1} << 30;
  std::size_t max_connections = 16384;                 // TCP server only
  std::size_t max_unauthenticated_connections = 2048;  // TCP server only
};

class Store {
 public:
  virtual ~Store() = default;

  virtual Status set(const std::string& key, const std::string& value, Deadline deadline) = 0;
  // Waits until the key exists.
  virtual Result<std::string> get(const std::string& key, Deadline deadline) = 0;
  // Waits until all keys exist.
  virtual Status wait(std::span<const std::string> keys, Deadline deadline) = 0;
  // Adds to a decimal counter (absent: 0) and returns the sum. Not a number: invalid_argument.
  virtual Result<std::int64_t> add(const std::string& key, std::int64_t amount, Deadline deadline) = 0;
  // Sets the key to `desired` if it is now `expected` (nullopt: absent). Returns the value that the
  // key has afterwards: equal to `desired` if it was exchanged. Expected but absent: not_found.
  virtual Result<std::string> compare_set(const std::string& key, const std::optional<std::string>& expected,
                                          const std::string& desired, Deadline deadline) = 0;
  // True if all keys exist now.
  virtual Result<bool> check(std::span<const std::string> keys, Deadline deadline) = 0;
  // True if the key existed.
  virtual Result<bool> remove(const std::string& key, Deadline deadline) = 0;
  // All pairs whose key starts with `prefix`, with whole keys, in key order.
  virtual Result<std::map<std::string, std::string>> list(const std::string& prefix, Deadline deadline) = 0;
  // Appends to the value (absent: empty) and returns its new length.
  virtual Result<std::size_t> append(const std::string& key, const std::string& value, Deadline deadline) = 0;

  // A last will: a value that the store sets when this client's connection ends without
  // withdraw_last_will. Other ranks learn of a death from it while the mesh is not connected yet. One
  // last will per key. A store that cannot detect the end of a client returns false and does nothing.
  virtual Result<bool> set_last_will(const std::string& key, const std::string& value, Deadline deadline) = 0;
  virtual Status withdraw_last_will(const std::string& key, Deadline deadline) = 0;

  // For messages: "the store at 10.0.0.1:29500", "the store in /tmp/x".
  virtual std::string describe() const = 0;
};

}  // namespace lockstep
