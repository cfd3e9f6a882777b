// A strict reader of the pickles in files that torch.save writes.
//
// A pickle is a program for a stack machine, and Python's reader calls any function that it names. This one builds
// None, booleans, numbers, strings, lists, tuples, dictionaries and tensors, and nothing else: every other function or
// class is an error that names it. Nothing is executed. A pure function over bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint/safetensors.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint {

// Memory that tensors refer to; its bytes are a member of the archive.
struct PickledStorage {
  std::string key;
  std::optional<Dtype> dtype = std::nullopt;  // nullopt: plain bytes, each tensor has the type
  std::int64_t count = 0;                     // in elements of dtype, or bytes
};
// Checked: every element is inside the storage.
struct PickledTensor {
  std::string storage;
  std::uint64_t storage_bytes = 0;
  Dtype dtype = Dtype::f32;
  std::int64_t offset = 0;  // in elements, as the strides
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

// A value; other values that it contains are indices into Pickle::values. A container may contain itself.
struct PickledList {
  std::vector<std::size_t> items;
  bool is_tuple = false;
};
struct PickledDictionary {
  std::vector<std::pair<std::size_t, std::size_t>> items;
};
struct PickledName {  // of a function or class, e.g. torch.FloatStorage
  std::string name;
};
using PickledValue = std::variant<std::monostate, bool, std::int64_t, double, std::string, PickledList,
                                  PickledDictionary, PickledName, PickledStorage, PickledTensor>;

struct Pickle {
  std::vector<PickledValue> values;
  std::size_t root = 0;
};

// Far above what the names and shapes of any model need. (The numbers of tensors are not in the pickle.)
inline constexpr std::size_t kMostPickleMemory = std::size_t{4} << 30;

// protocol_error: damaged, with something that is not data, or with values that need more than `most_memory` bytes,
// about. Containers may be nested to any depth.
Result<Pickle> parse_pickle(std::span<const std::byte> bytes, std::size_t most_memory = kMostPickleMemory);

// What a value is, for messages: "a tensor", "a dictionary", "a number", ...
const char* kind_of(const PickledValue& value);

// The name of the class of storages of this type: "FloatStorage". Null if torch has none.
const char* storage_class(Dtype dtype);

}  // namespace lockstep::checkpoint
