// A safetensors file: what is accepted can be written again and then has the same content.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::checkpoint;
  const auto parsed = parse_safetensors(std::as_bytes(std::span(data, size)));
  if (!parsed.ok()) return 0;
  std::vector<TensorInfo> infos;
  std::vector<std::span<const std::byte>> contents;
  for (const auto& [name, entry] : parsed->tensors) {
    infos.push_back(entry.info);
    contents.push_back(entry.data);
  }
  const auto layout = lay_out_safetensors(infos, parsed->metadata);
  if (!layout.ok()) __builtin_trap();
  std::string again = layout->head;
  for (const std::size_t index : layout->order) {
    again.append(reinterpret_cast<const char*>(contents[index].data()), contents[index].size());
  }
  const auto reparsed = parse_safetensors(std::as_bytes(std::span(again.data(), again.size())));
  if (!reparsed.ok() || reparsed->tensors.size() != infos.size() || reparsed->metadata != parsed->metadata) {
    __builtin_trap();
  }
  for (std::size_t i = 0; i < infos.size(); ++i) {
    const auto& entry = reparsed->tensors.at(infos[i].name);
    if (!(entry.info == infos[i]) || entry.data.size() != contents[i].size()) __builtin_trap();
  }
  return 0;
}
