#include "python/shared_log.h"

#include "base/codec.h"

namespace lockstep::python {

std::string format_change(const Change& change) {
  ByteWriter writer;
  writer.put(static_cast<std::uint8_t>(change.kind));
  writer.put_string(change.nonce);
  writer.put_string(change.key);
  writer.put_string(change.value);
  writer.put(static_cast<std::uint8_t>(change.expected ? 1 : 0));
  writer.put_string(change.expected.value_or(""));
  writer.put(change.amount);
  const Bytes& bytes = writer.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<Change> parse_change(std::string_view bytes) {
  const StoreLimits limits;
  ByteReader reader(std::as_bytes(std::span(bytes.data(), bytes.size())));
  Change change;
  const auto kind = reader.get<std::uint8_t>();
  change.nonce = reader.get_string(limits.max_key_bytes);
  change.key = reader.get_string(limits.max_key_bytes);
  change.value = reader.get_string(limits.max_value_bytes);
  const bool has_expected = reader.get<std::uint8_t>() != 0;
  std::string expected = reader.get_string(limits.max_value_bytes);
  if (has_expected) change.expected = std::move(expected);
  change.amount = reader.get<std::int64_t>();
  if (!reader.complete() || kind > static_cast<std::uint8_t>(ChangeKind::append)) {
    return Status(StatusCode::protocol_error,
                  "an entry of the log in PyTorch's store is malformed; is the store also "
                  "used by another version of lockstep?");
  }
  change.kind = static_cast<ChangeKind>(kind);
  return change;
}

ChangeResult apply(const Change& change, StoreState& state) {
  ChangeResult result;
  switch (change.kind) {
    case ChangeKind::nothing: break;
    case ChangeKind::set: result.status = state.set(change.key, change.value); break;
    case ChangeKind::remove: result.number = state.remove(change.key) ? 1 : 0; break;
    case ChangeKind::add: {
      const auto sum = state.add(change.key, change.amount);
      result.status = sum.status();
      if (sum.ok()) result.number = *sum;
      break;
    }
    case ChangeKind::append: {
      const auto length = state.append(change.key, change.value);
      result.status = length.status();
      if (length.ok()) result.number = static_cast<std::int64_t>(*length);
      break;
    }
    case ChangeKind::compare_set: {
      auto value = state.compare_set(change.key, change.expected, change.value);
      result.status = value.status();
      if (value.ok()) result.value = *std::move(value);
      break;
    }
  }
  return result;
}

}  // namespace lockstep::python
