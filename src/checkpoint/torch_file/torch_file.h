// Files that torch.save(state_dict, path) writes (the ZIP format, PyTorch 1.6 and later), as named tensors.
//
//   <any name>/data.pkl     the dictionary, pickled; tensors refer to the members below
//   <any name>/data/0, ...  the bytes of the tensors
//   <any name>/version, <any name>/byteorder
//
// Pure functions over bytes; no files. Reading executes nothing of what is in the file (pickle.h).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint {

// The spans point into the bytes that were parsed.
struct TorchFile {
  struct Entry {
    TensorInfo info;
    std::span<const std::byte> storage;
    std::int64_t offset = 0;  // of the first element, in elements, as the strides
    std::vector<std::int64_t> strides;
  };
  std::map<std::string, Entry> tensors;
  // Names of values that are not tensors, and what they are: {"_extra_state", "None"}.
  std::map<std::string, std::string> others;
};

// Whether the bytes begin as a ZIP archive does; a safetensors file never does.
bool is_zip(std::span<const std::byte> file);
// Whether it is a file that torch.save wrote, in the ZIP format or the older one, rather than a safetensors file. That
// begins with the size of its header, whose lowest byte may be 0x80, as the first one of a pickle is.
bool is_torch_file(std::span<const std::byte> file);

// The dictionary `key` of the file's dictionary, or that itself if key is empty. protocol_error: not such a file (the
// message states what it is, if that can be recognised), damaged, big-endian, or with values that are not data.
// invalid_argument: no such key, or the dictionary has no tensors; the message lists what there is.
Result<TorchFile> parse_torch_file(std::span<const std::byte> file, std::string_view key = {});

// What a new file consists of: heads[0], data of tensors[0], heads[1], ..., tail.
struct TorchFileLayout {
  std::vector<std::string> heads;
  std::string tail;
};
// `data`: of each tensor, contiguous, in the order of `tensors`. invalid_argument: a name appears twice, or a type that
// torch has no storage for.
Result<TorchFileLayout> lay_out_torch_file(std::span<const TensorInfo> tensors,
                                           std::span<const std::span<const std::byte>> data);

}  // namespace lockstep::checkpoint
