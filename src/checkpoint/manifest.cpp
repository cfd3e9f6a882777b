#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "checkpoint/hash.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kHashField = "{\"xxh3\":\"";
constexpr std::size_t kHashDigits = 32;
constexpr std::size_t kMaxDepth = 8;

// Left by the readers below; never leaves this file.
struct Malformed {
  std::string why;
};

std::string hash_text(std::string_view text) { return hash_of(std::as_bytes(std::span(text.data(), text.size()))); }

const Json& field(const Json& object, const char* name, Json::value_t type) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (found == object.end()) throw Malformed{fmt::format("it has no \"{}\"", name)};
  const bool fits = found->type() == type || (type == Json::value_t::number_integer && found->is_number_integer());
  if (!fits) throw Malformed{fmt::format("its \"{}\" is of another type than this version's", name)};
  return *found;
}

std::int64_t integer(const Json& value, const char* name) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > kMax)) {
    throw Malformed{fmt::format("its \"{}\" holds no whole number of 64 bits", name)};
  }
  return value.get<std::int64_t>();
}
std::int64_t integer_field(const Json& object, const char* name) {
  return integer(field(object, name, Json::value_t::number_integer), name);
}
std::string text_field(const Json& object, const char* name) {
  return field(object, name, Json::value_t::string).get<std::string>();
}

bool is_utf8(const std::string& text) {
  try {
    [[maybe_unused]] const std::string dumped = Json(text).dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

// What JSON cannot represent is written as an object: {"bytes": "00ff"}, {"float": "nan"}.
Json scalar_to_json(const Scalar& scalar) {
  if (const auto* const number = std::get_if<double>(&scalar)) {
    if (std::isfinite(*number)) return *number;
    return {{"float", fmt::format("{}", *number)}};
  }
  if (const auto* const text = std::get_if<std::string>(&scalar)) {
    if (is_utf8(*text)) return *text;
    std::string hex;
    for (const unsigned char byte : *text) hex += fmt::format("{:02x}", byte);
    return {{"bytes", hex}};
  }
  return std::get<std::int64_t>(scalar);
}

std::string from_hex(const std::string& hex) {
  const auto digit = [](char c) {
    const auto position = std::string_view("0123456789abcdef").find(c);
    if (position == std::string_view::npos) throw Malformed{"a value's \"bytes\" are not hexadecimal"};
    return static_cast<unsigned>(position);
  };
  if (hex.size() % 2 != 0) throw Malformed{"a value's \"bytes\" are not hexadecimal"};
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  return bytes;
}

Scalar scalar_from_json(const Json& value, const std::string& name) {
  if (value.is_number_float()) return value.get<double>();
  if (value.is_number_integer()) return integer(value, "values");
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("bytes")) return from_hex(text_field(value, "bytes"));
  if (value.is_object() && value.contains("float")) {
    const std::string text = text_field(value, "float");
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (text == "inf") return kInfinity;
    if (text == "-inf") return -kInfinity;
    return std::numeric_limits<double>::quiet_NaN();
  }
  throw Malformed{fmt::format("its value \"{}\" is of a type that this version does not support", printable(name))};
}

// A name must not point outside the snapshot's folder.
bool is_plain_name(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= 200 && name.front() != '.' && std::ranges::all_of(name, allowed) &&
         name != kManifestName;
}

FileRecord file_from_json(const Json& entry) {
  FileRecord file;
  file.name = text_field(entry, "name");
  file.xxh3 = text_field(entry, "xxh3");
  const std::int64_t bytes = integer_field(entry, "bytes");
  if (!is_plain_name(file.name)) throw Malformed{fmt::format("\"{}\" is no name for a file", printable(file.name))};
  if (bytes < 0) throw Malformed{fmt::format("{} would have {} bytes", file.name, bytes)};
  file.bytes = static_cast<std::uint64_t>(bytes);
  return file;
}

Manifest manifest_from_json(const Json& json) {
  const std::int64_t format = integer_field(json, "format");
  if (format < 1 || format > kFormatVersion) {
    throw Malformed{
        fmt::format("it is of format version {}, and this Lockstep reads version {} and older; load it with the "
                    "Lockstep that wrote it",
                    format, kFormatVersion)};
  }
  Manifest manifest;
  manifest.step = integer_field(json, "step");
  manifest.epoch = integer_field(json, "epoch");
  manifest.world_size = integer_field(json, "world_size");
  manifest.created = text_field(json, "created");
  manifest.lockstep = text_field(json, "lockstep");
  if (format > 1) {
    manifest.job = text_field(json, "job");
    manifest.generation = integer_field(json, "generation");
  }
  if (json.contains("optimizer")) {
    const Json& optimizer = field(json, "optimizer", Json::value_t::object);
    manifest.optimizer.emplace();
    manifest.optimizer->kind = text_field(optimizer, "kind");
    for (const Json& size : field(optimizer, "group_sizes", Json::value_t::array)) {
      manifest.optimizer->group_sizes.push_back(integer(size, "group_sizes"));
    }
  }
  if (json.contains("sampler")) {
    const Json& sampler = field(json, "sampler", Json::value_t::object);
    manifest.sampler = {.epoch = integer_field(sampler, "epoch"),
                        .seed = integer_field(sampler, "seed"),
                        .dataset_size = integer_field(sampler, "dataset_size"),
                        .consumed = integer_field(sampler, "consumed"),
                        .shuffle = field(sampler, "shuffle", Json::value_t::boolean).get<bool>()};
  }
  for (const auto& [name, value] : field(json, "values", Json::value_t::object).items()) {
    manifest.values[name] = scalar_from_json(value, name);
  }
  for (const Json& entry : field(json, "files", Json::value_t::array)) manifest.files.push_back(file_from_json(entry));
  return manifest;
}

}  // namespace

Result<std::string> format_manifest(const Manifest& manifest) {
  Json json{{"format", kFormatVersion},    {"step", manifest.step},
            {"epoch", manifest.epoch},     {"world_size", manifest.world_size},
            {"created", manifest.created}, {"lockstep", manifest.lockstep},
            {"job", manifest.job},         {"generation", manifest.generation},
            {"values", Json::object()},    {"files", Json::array()}};
  if (manifest.optimizer) {
    json["optimizer"] = {{"kind", manifest.optimizer->kind}, {"group_sizes", manifest.optimizer->group_sizes}};
  }
  if (manifest.sampler) {
    json["sampler"] = {{"epoch", manifest.sampler->epoch},
                       {"seed", manifest.sampler->seed},
                       {"dataset_size", manifest.sampler->dataset_size},
                       {"consumed", manifest.sampler->consumed},
                       {"shuffle", manifest.sampler->shuffle}};
  }
  for (const auto& [name, value] : manifest.values) {
    if (!is_utf8(name)) {
      return Status(StatusCode::invalid_argument,
                    fmt::format("the value \"{}\" needs a name in UTF-8", printable(name)));
    }
    json["values"][name] = scalar_to_json(value);
  }
  for (const FileRecord& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", file.xxh3}});
  }
  const std::string rest = "," + json.dump(1).substr(1) + "\n";  // the object, without its opening brace
  return std::string(kHashField) + hash_text(rest) + "\"" + rest;
}

Result<Manifest> parse_manifest(std::string_view text) {
  const auto malformed = [](const std::string& why) { return Status(StatusCode::protocol_error, why); };
  const std::size_t begin = kHashField.size() + kHashDigits + 1;
  if (text.size() <= begin || !text.starts_with(kHashField) || text[begin - 1] != '"') {
    return malformed("it does not begin like a manifest");
  }
  const std::string_view rest = text.substr(begin);
  if (hash_text(rest) != text.substr(kHashField.size(), kHashDigits)) {
    return malformed("its hash is not that of its content: it was damaged or cut off");
  }
  const auto shallow = [](int depth, Json::parse_event_t, Json&) {
    if (depth > static_cast<int>(kMaxDepth)) throw Malformed{"it is nested deeper than any manifest"};
    return true;
  };
  try {
    return manifest_from_json(Json::parse(text.begin(), text.end(), shallow));
  } catch (const Malformed& error) {
    return malformed(error.why);
  } catch (const Json::exception&) {
    return malformed("it is not JSON");
  }
}

}  // namespace lockstep::checkpoint
