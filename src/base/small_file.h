// Small files that are read and written as a whole.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/status.h"

namespace lockstep {

// Nothing if there is no such file.
Result<std::optional<std::string>> read_small_file(const std::string& path);
// The file appears with all of its content, or not at all. already_exists if there is one with this name.
Status create_small_file(const std::string& path, const std::string& content);
// The names in a folder, in no order.
Result<std::vector<std::string>> list_folder(const std::string& path);

}  // namespace lockstep
