#include "ddp/weights/weights_file.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <set>

#include "base/printable.h"
#include "checkpoint/safetensors_index.h"
#include "checkpoint/torch_file/torch_file.h"

namespace lockstep::detail {
namespace {

using TensorsByName = checkpoint::NamedTensors;

// Throws unless the result is a value; the message begins with the path.
template <typename T>
T value_of(Result<T> result, const std::string& path) {
  if (!result.ok()) throw Error(result.status().with_context(path));
  return std::move(*result);
}

at::Tensor tensor_of(const checkpoint::TorchFile::Entry& entry) {
  const auto options = at::TensorOptions().dtype(type_in_torch(entry.info));
  const std::size_t element = element_bytes(entry.info.dtype);
  auto* data = const_cast<std::byte*>(entry.storage.data());  // only read
  if (entry.storage.empty()) return at::empty(entry.info.shape, options);
  at::Tensor storage;
  if (reinterpret_cast<std::uintptr_t>(data) % element != 0) {  // another program's archive need not be aligned
    storage = at::empty({static_cast<std::int64_t>(entry.storage.size() / element)}, options);
    std::memcpy(storage.data_ptr(), data, static_cast<std::size_t>(storage.numel()) * element);
  } else {
    storage = at::from_blob(data, {static_cast<std::int64_t>(entry.storage.size() / element)}, options);
  }
  return storage.as_strided(entry.info.shape, entry.strides, entry.offset);
}

void add_safetensors(WeightsFile& file, const std::string& path) {
  file.bytes.push_back(value_or_throw(checkpoint::read_file(path)));
  const auto parsed = checkpoint::parse_safetensors(file.bytes.back().span());
  if (!parsed.ok()) throw Error(parsed.status().with_context(path + " is not a valid safetensors file"));
  for (auto& [name, tensor] : tensors_of_file(*parsed)) {
    if (!file.tensors.emplace(name, tensor).second) {
      throw Error(
          {StatusCode::protocol_error,
           fmt::format("{} has tensor \"{}\", which another file of its index has, too", path, printable(name))});
    }
  }
}

// {"weight_map": {"name": "file", ...}}
void add_indexed(WeightsFile& file, const std::string& path) {
  const auto bytes = value_or_throw(checkpoint::read_file(path));
  const auto index = value_of(checkpoint::parse_safetensors_index(bytes.text()), path);
  std::set<std::string> shards;
  for (const auto& [name, shard] : index) shards.insert(shard);
  const auto folder = std::filesystem::path(path).parent_path();
  for (const std::string& shard : shards) {
    const TensorsByName before = file.tensors;
    add_safetensors(file, (folder / shard).string());
    for (const auto& [name, tensor] : file.tensors) {
      if (before.contains(name)) continue;
      const auto expected = index.find(name);
      if (expected == index.end() || expected->second != shard) {
        throw Error({StatusCode::protocol_error, fmt::format("{} has tensor \"{}\", which is not listed there in {}",
                                                             shard, printable(name), path)});
      }
    }
  }
  for (const auto& [name, shard] : index) {
    if (!file.tensors.contains(name)) {
      throw Error({StatusCode::protocol_error,
                   fmt::format("{} lists tensor \"{}\" in {}, which does not have it", path, printable(name), shard)});
    }
  }
}

}  // namespace

WeightsFile WeightsFile::read(const std::string& path, const std::string& key) {
  WeightsFile file;
  const bool is_index = path.ends_with(".json");
  if (is_index) {
    add_indexed(file, path);
  } else {
    auto bytes = value_or_throw(checkpoint::read_file(path));
    if (checkpoint::is_torch_file(bytes.span())) {
      const auto parsed = value_of(checkpoint::parse_torch_file(bytes.span(), key), path);
      for (const auto& [name, entry] : parsed.tensors) file.tensors[name] = tensor_of(entry);
      file.others = parsed.others;
      file.bytes.push_back(std::move(bytes));
      return file;
    }
    add_safetensors(file, path);
  }
  if (!key.empty()) {
    throw Error(
        {StatusCode::invalid_argument,
         fmt::format("{} is a safetensors file, which has no dictionaries: leave out the key \"{}\"", path, key)});
  }
  return file;
}

}  // namespace lockstep::detail
