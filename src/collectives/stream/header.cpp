#include "collectives/stream/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/codec.h"

namespace lockstep {
namespace {

// Writes into the fixed array: ByteWriter would allocate on every operation.
class HeaderWriter {
 public:
  template <std::integral T>
  void put(T value) {
    std::memcpy(bytes_.data() + used_, &value, sizeof(T));
    used_ += sizeof(T);
  }
  const StreamHeaderBytes& bytes() const { return bytes_; }

 private:
  StreamHeaderBytes bytes_{};
  std::size_t used_ = 0;
};

Status malformed(std::string message) { return Status(StatusCode::protocol_error, std::move(message)); }

Status check_values(std::uint8_t algorithm, std::uint8_t kind, std::uint8_t dtype, std::uint8_t op) {
  if (algorithm < static_cast<std::uint8_t>(StreamAlgorithm::ring) ||
      algorithm > static_cast<std::uint8_t>(StreamAlgorithm::exchange)) {
    return malformed(fmt::format("data header with unknown algorithm {}", algorithm));
  }
  if (kind > static_cast<std::uint8_t>(OperationKind::all_to_all)) {
    return malformed(fmt::format("data header with unknown kind of operation {}", kind));
  }
  if (dtype > static_cast<std::uint8_t>(DType::i64)) {
    return malformed(fmt::format("data header with unknown dtype {}", dtype));
  }
  if (op > static_cast<std::uint8_t>(ReduceOp::bit_xor)) {
    return malformed(fmt::format("data header with unknown reduction {}", op));
  }
  return {};
}

std::string describe_algorithm(const StreamHeader& header) {
  if (header.chunks == 0) return std::string(to_string(header.algorithm));
  return fmt::format("{} on chunk {} of {}", to_string(header.algorithm), header.chunk, header.chunks);
}

}  // namespace

std::string_view to_string(StreamAlgorithm algorithm) {
  switch (algorithm) {
    case StreamAlgorithm::ring: return "ring";
    case StreamAlgorithm::direct: return "direct";
    case StreamAlgorithm::pair: return "pair";
    case StreamAlgorithm::small: return "small";
    case StreamAlgorithm::tree: return "tree";
    case StreamAlgorithm::chain: return "chain";
    case StreamAlgorithm::exchange: return "exchange";
  }
  return "unknown";
}

StreamHeaderBytes format_stream_header(const StreamHeader& header) {
  const OpDescriptor& descriptor = header.descriptor;
  HeaderWriter writer;
  writer.put(kStreamMagic);
  writer.put(kStreamVersion);
  writer.put(static_cast<std::uint8_t>(header.algorithm));
  writer.put(static_cast<std::uint8_t>(descriptor.kind));
  writer.put(static_cast<std::uint8_t>(descriptor.dtype));
  writer.put(static_cast<std::uint8_t>(descriptor.op));
  writer.put(header.chunk);
  writer.put(descriptor.root);
  writer.put(descriptor.sequence);
  writer.put(descriptor.count);
  writer.put(descriptor.digest);
  writer.put(header.chunks);
  return writer.bytes();
}

Result<StreamHeader> parse_stream_header(std::span<const std::byte> bytes) {
  if (bytes.size() != kStreamHeaderBytes) {
    return malformed(fmt::format("data header of {} bytes instead of {}", bytes.size(), kStreamHeaderBytes));
  }
  ByteReader reader(bytes);
  if (const auto magic = reader.get<std::uint32_t>(); magic != kStreamMagic) {
    return malformed(fmt::format("data header with magic {:08x} instead of {:08x}", magic, kStreamMagic));
  }
  if (const auto version = reader.get<std::uint16_t>(); version != kStreamVersion) {
    return malformed(
        fmt::format("data header of version {}, but this rank uses version {}; run the same release of "
                    "Lockstep on all ranks",
                    version, kStreamVersion));
  }
  const auto algorithm = reader.get<std::uint8_t>();
  const auto kind = reader.get<std::uint8_t>();
  const auto dtype = reader.get<std::uint8_t>();
  const auto op = reader.get<std::uint8_t>();
  LOCKSTEP_RETURN_IF_ERROR(check_values(algorithm, kind, dtype, op));
  StreamHeader header;
  header.algorithm = static_cast<StreamAlgorithm>(algorithm);
  header.descriptor.kind = static_cast<OperationKind>(kind);
  header.descriptor.dtype = static_cast<DType>(dtype);
  header.descriptor.op = static_cast<ReduceOp>(op);
  header.chunk = reader.get<std::uint16_t>();
  header.descriptor.root = reader.get<std::int32_t>();
  header.descriptor.sequence = reader.get<std::uint64_t>();
  header.descriptor.count = reader.get<std::uint64_t>();
  header.descriptor.digest = reader.get<std::uint64_t>();
  header.chunks = reader.get<std::uint16_t>();
  const auto reserved = reader.take(reader.remaining());
  if (std::any_of(reserved.begin(), reserved.end(), [](std::byte each) { return each != std::byte{0}; })) {
    return malformed("data header with reserved bytes that are not zero");
  }
  return header;
}

Status explain_header_difference(int my_rank, const StreamHeaderBytes& mine, int their_rank,
                                 const StreamHeaderBytes& theirs) {
  const auto parsed = parse_stream_header(theirs);
  if (!parsed.ok()) return parsed.status().with_context(fmt::format("rank {} sent a bad message", their_rank));
  const auto own = parse_stream_header(mine);
  if (!own.ok()) return own.status().with_context("own header");
  if (parsed->descriptor != own->descriptor) {
    return mismatch_error(my_rank, own->descriptor, their_rank, parsed->descriptor);
  }
  const bool mine_first = my_rank < their_rank;
  const StreamHeader& first = mine_first ? *own : *parsed;
  const StreamHeader& second = mine_first ? *parsed : *own;
  return Status(StatusCode::mismatch,
                fmt::format("ranks chose different algorithms for {}: rank {} runs {}, rank {} runs {}; set "
                            "LOCKSTEP_ALGORITHM to the same value on all ranks",
                            describe(own->descriptor), std::min(my_rank, their_rank), describe_algorithm(first),
                            std::max(my_rank, their_rank), describe_algorithm(second)));
}

}  // namespace lockstep
