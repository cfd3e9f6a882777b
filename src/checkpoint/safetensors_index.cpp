#include "checkpoint/safetensors_index.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace lockstep::checkpoint {
namespace {

Status refuse_index(std::string why) {
  return {StatusCode::protocol_error, "it is not an index of safetensors files: " + std::move(why)};
}

}  // namespace

Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view json) {
  // Without exceptions: discarded if it is not JSON.
  const auto index = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!index.is_object()) return refuse_index("not a JSON object");
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) return refuse_index("no \"weight_map\"");
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string()) return refuse_index(fmt::format("the file of \"{}\" is not text", printable(name)));
    const auto& text = file.get_ref<const std::string&>();
    if (text.empty() || text == "." || text == ".." || text.find('/') != std::string::npos ||
        text.find('\0') != std::string::npos) {
      return refuse_index(fmt::format("\"{}\" is not the name of a file in the same folder", printable(text)));
    }
    files.emplace(name, text);
  }
  return files;
}

}  // namespace lockstep::checkpoint
