// Sends gradients as 8-bit integers with one scale per block.
//
// The bucket is split into one chunk per rank. Every rank quantises its bucket and sends chunk r to rank r; rank
// r averages what it received in f32, quantises the average, and sends it to all. All ranks decode the same bytes.
#include <fmt/format.h>

#include <algorithm>

#include "ddp/hooks/hook_memory.h"
#include "ddp/hooks/quantise.h"
#include "lockstep/ddp/hooks.h"

namespace lockstep {

namespace {

using detail::QuantisedLayout;

enum Use { kWhole, kReceived, kAverage };

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

// One bucket in flight.
struct Transfer {
  at::Tensor buffer;
  QuantisedLayout layout;  // of one chunk
  at::Tensor whole;        // all chunks: first this rank's gradients, in the end the averages
  at::Tensor received;     // this rank's chunk of all ranks
  at::Tensor average;      // of these

  // The last chunks of a small bucket may be short or empty.
  std::span<float> chunk(int rank) const {
    const std::size_t total = static_cast<std::size_t>(buffer.numel());
    const std::size_t begin = std::min(static_cast<std::size_t>(rank) * layout.values(), total);
    const std::size_t end = std::min(begin + layout.values(), total);
    return {buffer.data_ptr<float>() + begin, end - begin};
  }
  std::byte* message(const at::Tensor& messages, int rank) const {
    return bytes_of(messages) + static_cast<std::size_t>(rank) * layout.bytes();
  }
};

class Int8Hook final : public CommHook {
 public:
  explicit Int8Hook(const Int8Options& options) : block_(static_cast<std::size_t>(options.block_size)) {}
  const char* name() const override { return "int8_compress"; }

  HookFuture run(const GradBucket& bucket, ProcessGroup& group) override {
    if (group.size() == 1) return {};
    if (bucket.buffer().scalar_type() != at::kFloat || !bucket.buffer().is_cpu()) {
      return group.all_reduce(bucket.buffer(), {.op = ReduceOp::avg});
    }
    const Transfer transfer = prepare(bucket, group);
    for (int rank = 0; rank < group.size(); ++rank) {
      detail::quantise(transfer.chunk(rank), transfer.layout, transfer.message(transfer.whole, rank));
    }
    return HookFuture({group.all_to_all(transfer.whole, transfer.received, {})},
                      [this, transfer, &group] { return average(transfer, group); });
  }

 private:
  Transfer prepare(const GradBucket& bucket, ProcessGroup& group) {
    const std::size_t ranks = static_cast<std::size_t>(group.size());
    const std::size_t chunk = (static_cast<std::size_t>(bucket.buffer().numel()) + ranks - 1) / ranks;
    const QuantisedLayout layout = QuantisedLayout::for_values(chunk, block_);
    const auto get = [&](Use use, std::size_t messages) {
      return memory_.get(group, bucket.index(), use, static_cast<std::int64_t>(messages * layout.bytes()), at::kByte);
    };
    return {bucket.buffer(), layout, get(kWhole, ranks), get(kReceived, ranks), get(kAverage, 1)};
  }

  HookFuture average(const Transfer& transfer, ProcessGroup& group) {
    // The chunk's memory in the bucket is free for the result.
    const std::span<float> values = transfer.chunk(group.rank());
    std::fill(values.begin(), values.end(), 0.0F);
    const float share = 1.0F / static_cast<float>(group.size());
    for (int rank = 0; rank < group.size(); ++rank) {
      detail::add_dequantised(transfer.message(transfer.received, rank), transfer.layout, share, values);
    }
    detail::quantise(values, transfer.layout, bytes_of(transfer.average));
    const int ranks = group.size();
    return HookFuture({group.all_gather(transfer.average, transfer.whole, {})}, [transfer, ranks]() -> HookFuture {
      transfer.buffer.zero_();
      for (int rank = 0; rank < ranks; ++rank) {
        detail::add_dequantised(transfer.message(transfer.whole, rank), transfer.layout, 1, transfer.chunk(rank));
      }
      return {};
    });
  }

  const std::size_t block_;
  detail::HookMemory memory_;
};

}  // namespace

std::shared_ptr<CommHook> int8_compress_hook(const Int8Options& options) {
  if (options.block_size < 16 || options.block_size % 16 != 0) {
    throw Error({StatusCode::invalid_argument,
                 fmt::format("int8_compress_hook: block_size is {} and must be a multiple of 16", options.block_size)});
  }
  return std::make_shared<Int8Hook>(options);
}

}  // namespace lockstep
