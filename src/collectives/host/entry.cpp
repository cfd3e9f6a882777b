#include "collectives/host/entry.h"

#include <cstring>

namespace lockstep {
namespace {

// In place, every rank maps the memory of every other one. With more ranks than this, that takes longer than staging.
constexpr int kInPlaceRanks = 64;

void fill(Announcement& slot, const OpDescriptor& op) {
  slot.root = op.root;
  slot.count = op.count;
  slot.sequence = op.sequence;
  slot.kind = static_cast<std::uint8_t>(op.kind);
  slot.dtype = static_cast<std::uint8_t>(op.dtype);
  slot.op = static_cast<std::uint8_t>(op.op);
  slot.digest = static_cast<std::uint32_t>(op.digest);
}

bool agrees(const Announcement& slot, const OpDescriptor& op) {
  return slot.root == op.root && slot.count == op.count && slot.sequence == op.sequence &&
         slot.kind == static_cast<std::uint8_t>(op.kind) && slot.dtype == static_cast<std::uint8_t>(op.dtype) &&
         slot.op == static_cast<std::uint8_t>(op.op) && slot.digest == static_cast<std::uint32_t>(op.digest);
}

OpDescriptor descriptor_in(const Announcement& slot) {
  return OpDescriptor{.sequence = slot.sequence,
                      .kind = static_cast<OperationKind>(slot.kind),
                      .dtype = static_cast<DType>(slot.dtype),
                      .op = static_cast<ReduceOp>(slot.op),
                      .root = slot.root,
                      .count = slot.count,
                      .digest = slot.digest};
}

Status publish_and_compare(const CollectiveCall& call, CollectiveContext& context) {
  auto& host = context.host;
  host.publish();
  LOCKSTEP_RETURN_IF_ERROR(host.wait_announced(context.scope));
  for (int local = 0; local < host.local_size(); ++local) {
    const auto& slot = host.announcement(local);
    if (agrees(slot, call.descriptor)) continue;
    return mismatch_error(context.topology.rank, call.descriptor, host.group_rank(local), descriptor_in(slot));
  }
  return Status();
}

}  // namespace

Status host_announce_payload(const CollectiveCall& call, CollectiveContext& context, std::span<const std::byte> payload,
                             std::size_t largest) {
  auto& slot = context.host.next_announcement();
  context.host.prepare_payload(largest > kSameLinePayload ? payload.size() : 0);
  fill(slot, call.descriptor);
  if (!payload.empty()) {
    std::memcpy(largest <= kSameLinePayload ? slot.small_payload : context.host.next_payload(), payload.data(),
                payload.size());
  }
  return publish_and_compare(call, context);
}

const std::byte* announced_payload(const CollectiveContext& context, int local, std::size_t largest) {
  return largest <= kSameLinePayload ? context.host.announcement(local).small_payload : context.host.payload(local);
}

Status host_announce_memory(const CollectiveCall& call, CollectiveContext& context, std::size_t input_bytes,
                            std::size_t output_bytes, bool hide) {
  MemoryRef input;
  MemoryRef output;
  if (!hide && context.host.local_size() <= kInPlaceRanks) {
    if (call.input != nullptr) input = context.host.find(call.input, input_bytes);
    if (call.output != nullptr) output = context.host.find(call.output, output_bytes);
  }
  auto& slot = context.host.next_announcement();
  fill(slot, call.descriptor);
  slot.memory = {.input_offset = input.offset,
                 .output_offset = output.offset,
                 .input_region = input.region,
                 .output_region = output.region};
  return publish_and_compare(call, context);
}

MemoryRef announced_input(const CollectiveContext& context, int local) {
  const auto& memory = context.host.announcement(local).memory;
  return MemoryRef{memory.input_region, memory.input_offset};
}

MemoryRef announced_output(const CollectiveContext& context, int local) {
  const auto& memory = context.host.announcement(local).memory;
  return MemoryRef{memory.output_region, memory.output_offset};
}

Result<PeerView> input_view(CollectiveContext& context, int local, std::size_t bytes) {
  return context.host.resolve(local, announced_input(context, local), bytes, context.scope);
}

Result<PeerView> output_view(CollectiveContext& context, int local, std::size_t bytes) {
  return context.host.resolve(local, announced_output(context, local), bytes, context.scope);
}

Status host_synchronise(CollectiveContext& context) {
  context.host.arrive();
  return context.host.wait_arrived(context.scope);
}

int divisor_of(const CollectiveCall& call, const CollectiveContext& context) {
  return call.descriptor.op == ReduceOp::avg ? context.topology.size() : 1;
}

}  // namespace lockstep
