// The index of a model that is stored in several safetensors files: "model.safetensors.index.json".
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "lockstep/base/status.h"

namespace lockstep::checkpoint {

// The file of each tensor, by the tensor's name. Files are names in the folder of the index: anything with a slash is
// refused. protocol_error: not such an index.
Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view json);

}  // namespace lockstep::checkpoint
