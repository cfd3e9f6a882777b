#include "checkpoint/state_header.h"

#include <fmt/format.h>

#include <utility>

namespace lockstep::checkpoint {
namespace {

constexpr std::uint32_t kMagic = 0x54534B4C;  // "LKST"
constexpr std::uint16_t kVersion = 1;

Status bad_header(std::string why) { return Status(StatusCode::protocol_error, std::move(why)); }

void put_optional(ByteWriter& writer, const std::optional<std::string>& head) {
  writer.put(static_cast<std::uint8_t>(head.has_value()));
  if (head) writer.put_string(*head);
}

Result<SafetensorsHead> parse_head(const std::string& bytes, const char* what) {
  auto head = parse_safetensors_head(std::as_bytes(std::span(bytes.data(), bytes.size())));
  if (!head.ok()) return head.status().with_context(fmt::format("the description of the {}", what));
  return head;
}

}  // namespace

Result<Bytes> format_state_header(std::int64_t progress, const Manifest& manifest, const StateHeads& heads) {
  const auto text = format_manifest(manifest);
  if (!text.ok()) return text.status();
  ByteWriter writer;
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(std::uint16_t{0});
  writer.put(progress);
  writer.put_string(*text);
  writer.put_string(heads.model);
  put_optional(writer, heads.optimizer);
  put_optional(writer, heads.values);
  if (writer.bytes().size() > kMaxStateHeader) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("the names and shapes of the state's tensors take {} bytes; at most {} can be sent",
                              writer.bytes().size(), kMaxStateHeader));
  }
  return writer.take();
}

Result<StateHeader> parse_state_header(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  const auto reserved = reader.get<std::uint16_t>();
  if (!reader.ok() || magic != kMagic) return bad_header("it does not begin like the state of an elastic job");
  if (version != kVersion || reserved != 0) {
    return bad_header(
        fmt::format("it is of version {}, and this Lockstep reads version {}: run one version of Lockstep on all hosts",
                    version, kVersion));
  }
  StateHeader header;
  header.progress = reader.get<std::int64_t>();
  const std::string manifest = reader.get_string(bytes.size());
  const std::string model = reader.get_string(bytes.size());
  std::optional<std::string> rest[2];
  for (auto& head : rest) {
    const auto present = reader.get<std::uint8_t>();
    if (present > 1) return bad_header("a flag is neither 0 nor 1");
    if (present == 1) head = reader.get_string(bytes.size());
  }
  if (!reader.complete()) return bad_header("its length is not that of its parts");
  if (header.progress < 0) return bad_header(fmt::format("it is of {} commits", header.progress));
  auto parsed = parse_manifest(manifest);
  if (!parsed.ok()) return parsed.status();
  header.manifest = *std::move(parsed);
  auto model_head = parse_head(model, "model");
  if (!model_head.ok()) return model_head.status();
  header.model = *std::move(model_head);
  std::optional<SafetensorsHead>* const targets[] = {&header.optimizer, &header.values};
  const char* const names[] = {"optimizer", "program's own tensors"};
  for (int i = 0; i < 2; ++i) {
    if (!rest[i]) continue;
    auto head = parse_head(*rest[i], names[i]);
    if (!head.ok()) return head.status();
    *targets[i] = *std::move(head);
  }
  return header;
}

}  // namespace lockstep::checkpoint
