// Each operation of ProcessGroup in terms of c10d's.
//
// Tensors that are not reduced are sent as bytes, so that every type with a size can be sent; reductions use a type
// that the engine can reduce. What the engine lacks (C10dBackendTraits) is built from what it has. Thread-safe.
#pragma once

#include "ddp/backends/c10d/c10d_headers.h"

#if LOCKSTEP_HAS_C10D

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "ddp/backends/c10d/c10d_engine.h"
#include "ddp/backends/c10d/c10d_lane.h"
#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

class C10dCollectives {
 public:
  // `engine`, `backend` and `lane` must outlive this. `device` is the engine's; `timeout` is for operations that set
  // none of their own.
  C10dCollectives(const C10dEngine& engine, C10dBackend& backend, C10dLane& lane, at::Device device, int rank, int size,
                  std::chrono::milliseconds timeout)
      : engine_(engine), backend_(backend), lane_(lane), device_(device), rank_(rank), size_(size), timeout_(timeout) {}

  // Throws Error if the group is dead or the engine cannot do it.
  Work submit(const TensorOperation& operation);

 private:
  using Tensors = std::vector<at::Tensor>;
  struct Reduction;

  Work all_reduce(const TensorOperation& operation);
  Work reduce(const TensorOperation& operation);
  Work reduce_scatter(const TensorOperation& operation);
  Work broadcast(const TensorOperation& operation);
  Work all_gather(const TensorOperation& operation);
  Work all_gather_v(const TensorOperation& operation);
  Work gather(const TensorOperation& operation);
  Work scatter(const TensorOperation& operation);
  Work all_to_all(const TensorOperation& operation);
  Work send(const TensorOperation& operation);
  Work recv(const TensorOperation& operation);
  // A collective on no elements: all ranks reach it, and nothing is sent.
  Work barrier(const TensorOperation& operation);

  // What the engine reduces instead of the input, and how the result is copied back.
  Reduction prepare(const TensorOperation& operation) const;
  // `tensors` are what c10d reads and writes; `finish` (may be null) is called after success.
  Work issue(const TensorOperation& operation, Tensors tensors, std::function<void()> finish,
             const std::function<C10dWork()>& start);
  // Throws Error if the engine has no tags and this is one.
  void check_tag(int tag) const;

  const C10dEngine& engine_;
  C10dBackend& backend_;
  C10dLane& lane_;
  const at::Device device_;
  const int rank_;
  const int size_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace lockstep::detail

#endif
