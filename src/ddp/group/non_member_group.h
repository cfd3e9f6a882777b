// A group that this process is not in: what new_group() returns to ranks that are not in its list.
//
// A null pointer would mean the default group, and a call on it would be matched with other ranks' calls on that group.
// The calls of collectives.h on such a group do nothing, as in PyTorch, and log a warning; everything that cannot be
// done without the group throws Error.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

class NonMemberGroup final : public ProcessGroup {
 public:
  // `global_rank` is this process's rank in the world. new_group() adds the members of the group.
  NonMemberGroup(int global_rank, std::string name, std::string backend)
      : global_rank_(global_rank), name_(std::move(name)), backend_(std::move(backend)) {}

  // Logs that `operation` does nothing here, once for each operation.
  void warn_once(const std::string& operation) const;

  const std::string& backend() const override { return backend_; }
  int rank() const override { return -1; }
  int size() const override { return -1; }
  int local_rank() const override { return -1; }
  int local_size() const override { return -1; }
  std::string describe() const override;
  Status check(const at::Tensor&, std::optional<ReduceOp>) const override { refuse(); }

  Work submit(const TensorOperation&) override { refuse(); }

  at::Tensor empty(std::int64_t, at::ScalarType, at::Device) override { refuse(); }
  Memory allocate(std::size_t) override { refuse(); }
  // A non-member cannot end the group: only warns.
  void abort(const std::string& reason) override;
  // Ok: there is nothing that could fail.
  Status health() const override { return {}; }

 protected:
  std::shared_ptr<ProcessGroup> make_subgroup(std::span<const int>, const std::string&) override { refuse(); }

 private:
  [[noreturn]] void refuse() const;

  const int global_rank_;
  const std::string name_;
  const std::string backend_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> warned_;  // guarded by mutex_
};

}  // namespace lockstep::detail
