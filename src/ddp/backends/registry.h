// The backends that this build knows: how each makes a group, and whether it can here.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp/backends/backend_spec.h"
#include "ddp/backends/watch_group.h"
#include "lockstep/ddp/backends.h"
#include "lockstep/ddp/init.h"
#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

// What a group is made of. The ranks meet at the first call of watch(), and once: backends for several
// devices share that meeting, and one that needs none (MPI brings its own) does without.
class GroupRequest {
 public:
  // `backend` is the name that was asked for ("openmpi"); `watch` is given where the ranks have met already.
  GroupRequest(ProcessGroupOptions options, std::string backend, WatchGroup watch = {})
      : options_(std::move(options)),
        backend_(std::move(backend)),
        watch_(std::make_shared<WatchGroup>(std::move(watch))) {}
  // The same meeting for another backend.
  GroupRequest with_backend(std::string backend) const;
  // True if nobody asked for the backend by name: it may never be used, and should not cost much before.
  bool by_default() const { return by_default_; }
  void set_by_default(bool value) { by_default_ = value; }

  const ProcessGroupOptions& options() const { return options_; }
  const std::string& backend() const { return backend_; }
  // Throws Error. Not thread-safe.
  const WatchGroup& watch();

 private:
  ProcessGroupOptions options_;
  std::string backend_;
  std::shared_ptr<WatchGroup> watch_;
  bool by_default_ = false;
};

struct BackendEntry {
  // Ok, or why not: "this LibTorch was built without NCCL". Cheap, and without side effects.
  std::function<Status()> available;
  // Collective. Throws Error.
  std::function<std::shared_ptr<ProcessGroup>(GroupRequest&)> make;
  // The kind of device that it is for, if that is not the CPU: asked for alone, it gets Lockstep's engine for CPU
  // tensors beside it.
  std::string device = {};
  // Collective, where there is one: Ok, or on all ranks the same reason why they cannot use it together. By default
  // the backend is then left out; one that was asked for by name is refused.
  std::function<Status(GroupRequest&)> agree = {};
};

// Thread-safe. The built-in ones are there from the start (registry.cpp has the list); a name may be
// registered once more, by a user's own engine, only if it is free or not available here.
void register_backend(const std::string& name, BackendEntry entry);
// Ok, or an error that names what is missing and what there is.
Status check_backend(const std::string& name);

// The spec that an empty one stands for: "lockstep", or "cpu:lockstep,cuda:nccl" where NCCL can be used.
BackendSpec default_backend_spec();
// options.backend, or LOCKSTEP_BACKEND where that is empty, or the default. Throws Error.
BackendSpec requested_backend_spec(const ProcessGroupOptions& options);
// A backend that is for another device, asked for alone ("nccl"), as what it means: "cpu:lockstep,cuda:nccl".
BackendSpec with_cpu_beside(const BackendSpec& spec);
// The group of request.backend(). Collective. Throws Error.
std::shared_ptr<ProcessGroup> make_group_on(GroupRequest request);
// The group that `options` ask for; one for each device behind a router where they name several. Throws Error.
std::shared_ptr<ProcessGroup> make_group(const ProcessGroupOptions& options);

}  // namespace lockstep::detail
