// The entries of the log that StoreOverC10d keeps in a foreign store: each is one change of a key-value store. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/status.h"
#include "store/store_state.h"

namespace lockstep::python {

enum class ChangeKind : std::uint8_t { nothing = 0, set = 1, add = 2, compare_set = 3, remove = 4, append = 5 };

struct Change {
  ChangeKind kind = ChangeKind::nothing;
  std::string key = {};
  std::string value = {};                    // of set and append; what compare_set wants to write
  std::optional<std::string> expected = {};  // of compare_set
  std::int64_t amount = 0;                   // of add
  std::string nonce = {};                    // makes every entry unlike every other one

  friend bool operator==(const Change&, const Change&) = default;
};

// What the call returns that made the change.
struct ChangeResult {
  Status status = {};
  std::string value = {};   // compare_set: of the key afterwards
  std::int64_t number = 0;  // add: the sum; append: the length; remove: 1 if the key existed
};

std::string format_change(const Change& change);
// protocol_error if these are not the bytes of a change.
Result<Change> parse_change(std::string_view bytes);

// The same result on every replica that has applied the same changes before.
ChangeResult apply(const Change& change, StoreState& state);

}  // namespace lockstep::python
