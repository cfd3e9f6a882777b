// Sends gradients as 16-bit floats.
#include "ddp/hooks/hook_memory.h"
#include "lockstep/ddp/hooks.h"

namespace lockstep {

namespace {

class HalfHook final : public CommHook {
 public:
  HalfHook(const char* name, at::ScalarType wire_type) : name_(name), wire_type_(wire_type) {}
  const char* name() const override { return name_; }

  HookFuture run(const GradBucket& bucket, ProcessGroup& group) override {
    if (group.size() == 1) return {};
    const at::Tensor& buffer = bucket.buffer();
    if (buffer.scalar_type() != at::kFloat && buffer.scalar_type() != at::kDouble) {
      return group.all_reduce(buffer, {.op = ReduceOp::avg});
    }
    const at::Tensor wire = memory_.get(group, bucket.index(), 0, buffer.numel(), wire_type_, buffer.device());
    // Divided while the values still have the bucket's range: a sum of 16-bit values could overflow although
    // the average does not.
    wire.copy_(buffer.div_(group.size()));
    return HookFuture({group.all_reduce(wire, {.op = ReduceOp::sum})}, [buffer, wire]() -> HookFuture {
      buffer.copy_(wire);
      return {};
    });
  }

 private:
  const char* const name_;
  const at::ScalarType wire_type_;
  detail::HookMemory memory_;
};

}  // namespace

std::shared_ptr<CommHook> fp16_compress_hook() { return std::make_shared<HalfHook>("fp16_compress", at::kHalf); }
std::shared_ptr<CommHook> bf16_compress_hook() { return std::make_shared<HalfHook>("bf16_compress", at::kBFloat16); }

}  // namespace lockstep
