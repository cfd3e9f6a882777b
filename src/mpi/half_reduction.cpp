#include "mpi/half_reduction.h"

#include <cstring>
#include <vector>

#include "collectives/kernels/kernels.h"

namespace lockstep::mpi {
namespace {

constexpr std::size_t kBytes = 2;  // of an element

// What one operation works in; one part for each rank.
class Parts {
 public:
  Parts(const HalfReduction& call, DType dtype, std::size_t part)
      : call_(call), dtype_(dtype), part_(part), own_(make(call, part)), received_(make(call, part)) {}

  std::byte* own() const { return own_.get(); }
  std::byte* received() const { return received_.get(); }

  // The tensor as parts of equal size.
  void fill(ConstBuffer data) const {
    if (data.count > 0) std::memcpy(own(), data.data, data.bytes());
    std::memset(own() + data.bytes(), 0, total_bytes() - data.bytes());
  }
  void copy_to(Buffer data) const {
    if (data.count > 0) std::memcpy(data.data, own(), data.bytes());
  }
  int exchange(const void* input, lockstep_mpi_request** request) const {
    return call_.mpi->all_to_all(call_.comm, input, received(), part_, static_cast<int>(dtype_), request);
  }
  // All ranks' versions of this rank's part, in the order of the ranks.
  void combine(std::byte* result) const {
    std::vector<const std::byte*> sources;
    for (int rank = 0; rank < call_.size; ++rank) {
      sources.push_back(received() + static_cast<std::size_t>(rank) * part_ * kBytes);
    }
    std::byte* const targets[] = {result};
    lockstep::reduce(dtype_, call_.op, sources, targets, part_, call_.op == ReduceOp::avg ? call_.size : 1);
  }

 private:
  std::size_t total_bytes() const { return static_cast<std::size_t>(call_.size) * part_ * kBytes; }
  // Never null: MPI takes no null pointers, not even for nothing.
  static std::unique_ptr<std::byte[]> make(const HalfReduction& call, std::size_t part) {
    return std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(call.size) * part * kBytes + 1);
  }

  const HalfReduction call_;
  const DType dtype_;
  const std::size_t part_;
  const std::unique_ptr<std::byte[]> own_;       // this rank's tensor; later the result
  const std::unique_ptr<std::byte[]> received_;  // this rank's part, from every rank
};

std::size_t part_of(std::size_t count, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  return (count + ranks - 1) / ranks;
}

}  // namespace

bool rounds_once(DType dtype, ReduceOp op) {
  return (dtype == DType::f16 || dtype == DType::bf16) &&
         (op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::prod);
}

void HalfReduction::all_reduce(ChannelOperation& operation, Buffer data) const {
  const auto parts = std::make_shared<Parts>(*this, data.dtype, part_of(data.count, size));
  operation.memory = parts;
  operation.start = [=](lockstep_mpi_request** request) {
    parts->fill(data);
    return parts->exchange(parts->own(), request);
  };
  operation.then = [=, call = *this](lockstep_mpi_request** request) {
    parts->combine(parts->received());
    return call.mpi->all_gather(call.comm, parts->received(), parts->own(), part_of(data.count, call.size),
                                static_cast<int>(data.dtype), request);
  };
  operation.finish = [=](std::size_t) {
    parts->copy_to(data);
    return Status();
  };
}

void HalfReduction::reduce(ChannelOperation& operation, Buffer data, int root) const {
  all_reduce(operation, data);
  const auto parts = std::static_pointer_cast<Parts>(operation.memory);
  operation.then = [=, call = *this](lockstep_mpi_request** request) {
    parts->combine(parts->received());
    return call.mpi->gather(call.comm, parts->received(), parts->own(), part_of(data.count, call.size),
                            static_cast<int>(data.dtype), root, request);
  };
  if (rank != root) operation.finish = nullptr;
}

void HalfReduction::reduce_scatter(ChannelOperation& operation, ConstBuffer input, Buffer output) const {
  const auto parts = std::make_shared<Parts>(*this, input.dtype, output.count);
  operation.memory = parts;
  operation.start = [=](lockstep_mpi_request** request) {
    return parts->exchange(input.data != nullptr ? input.data : parts->own(), request);
  };
  operation.finish = [=](std::size_t) {
    parts->combine(static_cast<std::byte*>(output.data));
    return Status();
  };
}

}  // namespace lockstep::mpi
