#include "checkpoint/torch_file/torch_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/printable.h"
#include "checkpoint/torch_file/bytes.h"
#include "checkpoint/torch_file/crc32.h"
#include "checkpoint/torch_file/pickle.h"
#include "checkpoint/torch_file/zip.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t kListedKeys = 12;

Status refuse_torch_file(std::string message) { return {StatusCode::protocol_error, std::move(message)}; }

bool begins_with(std::span<const std::byte> file, std::string_view bytes) {
  return as_text(file.first(std::min(file.size(), bytes.size()))) == bytes;
}

// Members without the folder that they are all in.
struct Archive {
  ZipMembers members;
  const std::span<const std::byte>* find(const std::string& name) const {
    const auto found = members.find(name);
    return found == members.end() ? nullptr : &found->second;
  }
};

// Only TorchScript archives have this member. Their directory, at the end, lists it; other members may be compressed,
// so that parse_zip() fails.
bool lists_constants(std::span<const std::byte> file) {
  const auto end = file.last(std::min<std::size_t>(file.size(), std::size_t{1} << 20));
  return as_text(end).find("/constants.pkl") != std::string_view::npos;
}

Result<Archive> open_archive(std::span<const std::byte> file) {
  if (!is_zip(file)) {
    if (begins_with(file, "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19")) {
      return refuse_torch_file(
          "it is in the format of PyTorch before 1.6: load it in Python and save it again, without "
          "_use_new_zipfile_serialization=False");
    }
    return refuse_torch_file("it is not a file that torch.save writes");
  }
  auto members = parse_zip(file);
  if (lists_constants(file)) {
    return refuse_torch_file(
        "it is a TorchScript archive (torch.jit.save, or torch::save in C++), not a state_dict: use "
        "checkpoint::import_torch_archive() if you trust it, or torch.save(model.state_dict(), path) in Python");
  }
  if (!members.ok()) return members.status();
  Archive archive;
  std::string folder;
  for (const auto& [name, data] : *members) {
    const std::size_t slash = name.find('/');
    if (slash == std::string::npos)
      return refuse_torch_file(fmt::format("it has a member \"{}\" in no folder", printable(name)));
    if (archive.members.empty()) folder = name.substr(0, slash);
    if (name.substr(0, slash) != folder) return refuse_torch_file("its members are in several folders");
    archive.members.emplace(name.substr(slash + 1), data);
  }
  if (archive.find("data.pkl") == nullptr)
    return refuse_torch_file("it has no member data.pkl, which torch.save writes");
  const auto* const order = archive.find("byteorder");
  if (order != nullptr && as_text(*order) != "little") return refuse_torch_file("its numbers are not little-endian");
  return archive;
}

std::string describe_keys(const Pickle& pickle, const PickledDictionary& dictionary) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : dictionary.items) {
    const auto* const name = std::get_if<std::string>(&pickle.values[key]);
    if (name == nullptr) continue;
    if (keys.size() == kListedKeys) {
      keys.emplace_back("...");
      break;
    }
    keys.push_back(fmt::format("\"{}\" ({})", printable(*name), kind_of(pickle.values[value])));
  }
  return keys.empty() ? "nothing with a name" : fmt::format("{}", fmt::join(keys, ", "));
}

Result<const PickledDictionary*> choose(const Pickle& pickle, std::string_view key) {
  const auto* const root = std::get_if<PickledDictionary>(&pickle.values[pickle.root]);
  if (root == nullptr) {
    return Status{StatusCode::invalid_argument, fmt::format("it has {}, not a dictionary of tensors: save "
                                                            "model.state_dict()",
                                                            kind_of(pickle.values[pickle.root]))};
  }
  if (key.empty()) return root;
  const PickledDictionary* chosen = nullptr;  // Python's reader takes the last of equal keys, too
  for (const auto& [name, value] : root->items) {
    const auto* const text = std::get_if<std::string>(&pickle.values[name]);
    if (text != nullptr && *text == key) chosen = std::get_if<PickledDictionary>(&pickle.values[value]);
  }
  if (chosen != nullptr) return chosen;
  return Status{StatusCode::invalid_argument,
                fmt::format("it has no dictionary \"{}\"; it has {}", printable(key), describe_keys(pickle, *root))};
}

Result<TorchFile::Entry> make_entry(const Archive& archive, const std::string& name, const PickledTensor& tensor) {
  const auto* const storage = archive.find("data/" + tensor.storage);
  if (storage == nullptr || storage->size() != tensor.storage_bytes) {
    return refuse_torch_file(fmt::format("the data of tensor \"{}\" is missing or has another size", printable(name)));
  }
  return TorchFile::Entry{{name, tensor.dtype, tensor.shape}, *storage, tensor.offset, tensor.strides};
}

// ---- writing

void append_text(std::string& pickle, std::string_view value) {
  pickle.push_back('X');
  append_number(pickle, value.size(), 4);
  pickle += value;
}
void append_integer(std::string& pickle, std::int64_t value) {
  pickle += "\x8a\x08";
  append_number(pickle, static_cast<std::uint64_t>(value), 8);
}
void append_tuple(std::string& pickle, const std::vector<std::int64_t>& values) {
  pickle.push_back('(');
  for (const std::int64_t value : values) append_integer(pickle, value);
  pickle.push_back('t');
}

constexpr std::string_view kEmptyDictionary = "ccollections\nOrderedDict\n)R";

void append_tensor(std::string& pickle, const TensorInfo& info, std::size_t key) {
  std::vector<std::int64_t> strides(info.shape.size(), 1);
  std::int64_t count = 1;
  for (std::size_t i = info.shape.size(); i-- > 0;) {
    strides[i] = count;
    count *= std::max<std::int64_t>(info.shape[i], 1);
  }
  if (std::find(info.shape.begin(), info.shape.end(), 0) != info.shape.end()) count = 0;
  pickle += "ctorch._utils\n_rebuild_tensor_v2\n((";
  append_text(pickle, "storage");
  pickle += fmt::format("ctorch\n{}\n", storage_class(info.dtype));
  append_text(pickle, std::to_string(key));
  append_text(pickle, "cpu");
  append_integer(pickle, count);
  pickle += "tQ";
  append_integer(pickle, 0);
  append_tuple(pickle, info.shape);
  append_tuple(pickle, strides);
  pickle += '\x89';
  pickle += kEmptyDictionary;
  pickle += "tR";
}

}  // namespace

bool is_zip(std::span<const std::byte> file) { return begins_with(file, "PK\x03\x04"); }

bool is_torch_file(std::span<const std::byte> file) {
  if (is_zip(file)) return true;
  constexpr std::size_t kSizeBytes = 8;
  return begins_with(file, "\x80") &&
         (file.size() < kSizeBytes || as_number(file.first(kSizeBytes)) > kMaxSafetensorsHeader);
}

Result<TorchFile> parse_torch_file(std::span<const std::byte> file, std::string_view key) {
  const auto archive = open_archive(file);
  if (!archive.ok()) return archive.status();
  const auto pickle = parse_pickle(*archive->find("data.pkl"));
  if (!pickle.ok()) return pickle.status();
  const auto dictionary = choose(*pickle, key);
  if (!dictionary.ok()) return dictionary.status();
  TorchFile result;
  for (const auto& [name_index, value_index] : (*dictionary)->items) {
    const auto* const name = std::get_if<std::string>(&pickle->values[name_index]);
    const PickledValue& value = pickle->values[value_index];
    if (name == nullptr) return refuse_torch_file("a key of its dictionary is not text");
    if (result.tensors.contains(*name) || result.others.contains(*name)) {
      return refuse_torch_file(fmt::format("its dictionary has \"{}\" twice", printable(*name)));
    }
    if (const auto* const tensor = std::get_if<PickledTensor>(&value)) {
      auto entry = make_entry(*archive, *name, *tensor);
      if (!entry.ok()) return entry.status();
      result.tensors.emplace(*name, std::move(*entry));
    } else {
      result.others.emplace(*name, kind_of(value));
    }
  }
  if (result.tensors.empty() && !result.others.empty()) {
    return Status{StatusCode::invalid_argument,
                  fmt::format("{} has no tensors, but {}{}",
                              key.empty() ? "its dictionary" : fmt::format("its dictionary \"{}\"", printable(key)),
                              describe_keys(*pickle, **dictionary),
                              key.empty() ? ": choose one of its dictionaries by its key" : "")};
  }
  return result;
}

Result<TorchFileLayout> lay_out_torch_file(std::span<const TensorInfo> tensors,
                                           std::span<const std::span<const std::byte>> data) {
  std::string pickle = "\x80\x02";
  pickle += kEmptyDictionary;
  pickle.push_back('(');
  std::set<std::string> names;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& info = tensors[i];
    if (!names.insert(info.name).second) {
      return Status{StatusCode::invalid_argument, fmt::format("two tensors are called \"{}\"", info.name)};
    }
    if (storage_class(info.dtype) == nullptr) {
      return Status{StatusCode::invalid_argument, fmt::format("tensor \"{}\" is {}, which torch.save's format has no "
                                                              "storage for: save it as safetensors",
                                                              info.name, info.describe())};
    }
    append_text(pickle, info.name);
    append_tensor(pickle, info, i);
  }
  pickle += "u.";

  const std::string_view version = "3\n", order = "little";
  const auto entry = [](std::string name, std::span<const std::byte> bytes) {
    return ZipEntry{"weights/" + std::move(name), bytes.size(), crc32(bytes)};
  };
  const auto bytes_of = [](std::string_view value) { return std::as_bytes(std::span(value.data(), value.size())); };
  std::vector<ZipEntry> entries = {entry("data.pkl", bytes_of(pickle)), entry("byteorder", bytes_of(order)),
                                   entry("version", bytes_of(version))};
  const std::size_t before = entries.size();
  for (std::size_t i = 0; i < data.size(); ++i) entries.push_back(entry(fmt::format("data/{}", i), data[i]));
  ZipLayout zip = lay_out_zip(entries);
  // Everything before the first tensor's data is one head.
  std::string head = zip.heads[0] + pickle + zip.heads[1] + std::string(order) + zip.heads[2] + std::string(version);
  TorchFileLayout layout;
  for (std::size_t i = 0; i < data.size(); ++i) {
    layout.heads.push_back((i == 0 ? head : std::string()) + zip.heads[before + i]);
  }
  layout.tail = (data.empty() ? head : std::string()) + zip.tail;
  return layout;
}

}  // namespace lockstep::checkpoint
