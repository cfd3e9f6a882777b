// A ProcessGroup on one of LibTorch's engines (or any other that implements c10d), with a watch group beside it.
//
// The watch group (Lockstep's own engine) performs the rendezvous, names the ranks and detects lost ones; the c10d
// engine moves the tensors. When a peer is lost or a rank aborts, the watch group's reason ends every operation here
// too. Every operation has a deadline. docs/backends.md lists the guarantees by backend.
#pragma once

#include "ddp/backends/c10d/c10d_headers.h"

#if LOCKSTEP_HAS_C10D

#include <chrono>
#include <memory>
#include <string>

#include "ddp/backends/c10d/c10d_collectives.h"
#include "ddp/backends/c10d/c10d_engine.h"
#include "ddp/backends/c10d/c10d_lane.h"
#include "ddp/backends/watch_group.h"
#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

struct C10dTimeouts {
  std::chrono::milliseconds operation{std::chrono::minutes(30)};  // if a call sets none
  std::chrono::milliseconds init{std::chrono::minutes(5)};        // for connecting the engine
};

class C10dGroup final : public ProcessGroup {
 public:
  // Connects the engine between the ranks of `watch`, all of which must call it; the watch group must be this group's
  // own. Throws Error.
  C10dGroup(WatchGroup watch, std::shared_ptr<const C10dEngine> engine, const C10dTimeouts& timeouts);
  ~C10dGroup() override;

  const std::string& backend() const override { return engine_->name; }
  int rank() const override { return watch_.group->rank(); }
  int size() const override { return watch_.group->size(); }
  int local_rank() const override { return watch_.group->local_rank(); }
  int local_size() const override { return watch_.group->local_size(); }
  std::string describe() const override;
  Status check(const at::Tensor& tensor, std::optional<ReduceOp> op) const override;

  Work submit(const TensorOperation& operation) override;

  at::Tensor empty(std::int64_t count, at::ScalarType dtype, at::Device device = at::kCPU) override;
  Memory allocate(std::size_t bytes) override;
  void abort(const std::string& reason) override;
  Status health() const override { return lane_->health(); }

 protected:
  std::shared_ptr<ProcessGroup> make_subgroup(std::span<const int> ranks, const std::string& name) override;

 private:
  void connect();
  C10dBackendArguments arguments() const;

  const WatchGroup watch_;
  const std::shared_ptr<const C10dEngine> engine_;
  const C10dTimeouts timeouts_;
  const at::Device device_;       // of the engine; for one with streams, the caller's current one
  std::shared_ptr<Store> store_;  // of this group alone
  c10::intrusive_ptr<C10dBackend> backend_;
  std::unique_ptr<C10dLane> lane_;                // uses the backend
  std::unique_ptr<C10dCollectives> collectives_;  // uses the lane
};

}  // namespace lockstep::detail

#endif
