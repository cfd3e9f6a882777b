// Reads a key without waiting for it.
#pragma once

#include <optional>
#include <string>

#include "lockstep/store/store.h"

namespace lockstep {

// The value of `key`, or nothing if it is not set.
inline Result<std::optional<std::string>> read_now(Store& store, const std::string& key, Deadline deadline) {
  auto pairs = store.list(key, deadline);
  if (!pairs.ok()) return pairs.status();
  const auto found = pairs->find(key);
  if (found == pairs->end()) return std::optional<std::string>();
  return std::optional<std::string>(std::move(found->second));
}

}  // namespace lockstep
