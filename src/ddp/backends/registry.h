// The backends of this build: how each creates a group, and whether it is available here.
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

// What a group is created from. The first call of watch(), and only that one, performs the rendezvous: backends for
// several devices share it, and a backend that needs none (MPI has its own) does not call it.
class GroupRequest {
 public:
  // `backend` is the name that was asked for ("openmpi"); `watch` is given if the rendezvous has already happened.
  GroupRequest(ProcessGroupOptions options, std::string backend, WatchGroup watch = {})
      : options_(std::move(options)),
        backend_(std::move(backend)),
        watch_(std::make_shared<WatchGroup>(std::move(watch))) {}
  // The same rendezvous for another backend.
  GroupRequest with_backend(std::string backend) const;
  // True if the user did not name the backend: it may never be used, and should cost little until it is.
  bool by_default() const { return by_default_; }
  void set_by_default(bool value) { by_default_ = value; }

  const ProcessGroupOptions& options() const { return options_; }
  const std::string& backend() const { return backend_; }
  // Throws Error. Not thread-safe.
  const WatchGroup& watch();
  // One that no other backend uses. Collective. Throws Error.
  WatchGroup own_watch();
  // Several backends share the rendezvous.
  void set_shared() { shared_ = true; }

 private:
  ProcessGroupOptions options_;
  std::string backend_;
  std::shared_ptr<WatchGroup> watch_;
  bool by_default_ = false;
  bool shared_ = false;
};

struct BackendEntry {
  // Ok, or why not: "this LibTorch was built without NCCL". Cheap, and without side effects.
  std::function<Status()> available;
  // Collective. Throws Error.
  std::function<std::shared_ptr<ProcessGroup>(GroupRequest&)> make;
  // The kind of device that it is for, if that is not the CPU: asked for alone, it gets Lockstep's engine for CPU
  // tensors beside it.
  std::string device = {};
  // May be empty. Collective: Ok, or on all ranks the same reason why they cannot use the backend together. A default
  // backend is then left out; one that the user named is refused.
  std::function<Status(GroupRequest&)> agree = {};
};

// Thread-safe. The built-in backends are registered from the start (registry.cpp has the list). A name can be
// registered again, by a user's own engine, only if it is free or not available here.
void register_backend(const std::string& name, BackendEntry entry);
// Ok, or an error that names what is missing and which backends are available.
Status check_backend(const std::string& name);

// The meaning of an empty spec: "lockstep", or "cpu:lockstep,cuda:nccl" if NCCL is available.
BackendSpec default_backend_spec();
// options.backend, or LOCKSTEP_BACKEND if that is empty, or the default. Throws Error.
BackendSpec requested_backend_spec(const ProcessGroupOptions& options);
// A backend for another device that was asked for alone ("nccl"), with the CPU's: "cpu:lockstep,cuda:nccl".
BackendSpec with_cpu_beside(const BackendSpec& spec);
// The group of request.backend(). Collective. Throws Error.
std::shared_ptr<ProcessGroup> make_group_on(GroupRequest request);
// The group that `options` ask for; if they name several backends, a router with one group for each device. Throws
// Error.
std::shared_ptr<ProcessGroup> make_group(const ProcessGroupOptions& options);

}  // namespace lockstep::detail
