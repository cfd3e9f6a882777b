// The available backends, and how to register a c10d engine of your own as a backend.
//
//   lockstep::register_c10d_backend("mine", [](const lockstep::C10dBackendArguments& arguments) {
//     return c10::make_intrusive<MyBackend>(arguments.store, arguments.rank, arguments.size);
//   });
//   lockstep::init_process_group({.backend = "mine"});      // or LOCKSTEP_BACKEND=mine
//
// docs/backends.md lists what Lockstep adds to an engine (rendezvous, deadlines, errors that name the lost rank) and
// what the engine must provide.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/version.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

// Only declared here, so that this header also works with a LibTorch without c10d.
namespace c10d {
class Backend;
class ProcessGroup;
class Store;
}  // namespace c10d

namespace lockstep {

// The base class of LibTorch's engines. The functions that Lockstep calls have the same names in both versions.
#if TORCH_VERSION_MAJOR >= 2
using C10dBackend = ::c10d::Backend;
#else
using C10dBackend = ::c10d::ProcessGroup;
#endif

struct C10dBackendArguments {
  // The job's store, protected by its secret, with a prefix that only this group uses.
  c10::intrusive_ptr<::c10d::Store> store;
  int rank = 0;
  int size = 1;
  // True if all ranks are on this host.
  bool one_host = true;
  // An address of this host that the other hosts can reach; 127.0.0.1 on one host.
  std::string address;
  // For the engine's own waits. Longer than any of Lockstep's deadlines, so that those expire first.
  std::chrono::milliseconds timeout;
  std::string group_name;
};

// What the engine can do. Lockstep builds what is missing from what the engine has.
struct C10dBackendTraits {
  // The kind of device whose tensors it takes.
  c10::DeviceType device = c10::DeviceType::CPU;
  // Its Work::wait() orders the caller's stream after the operation instead of blocking (NCCL). It keeps the memory of
  // its tensors alive until it has finished with them (record_stream), which its Work::isCompleted() reports.
  bool stream_ordered = false;
  // ReduceOp::AVG. Else: sum, then division on every rank.
  bool averages = false;
  // _reduce_scatter_base. Else: all-reduce, of which each rank keeps its block.
  bool reduce_scatters = false;
  // _allgather_base. Else: allgather, into the blocks of the output.
  bool gathers_flat = false;
  // Sums of float16 and bfloat16. Else: through float32, with twice the traffic.
  bool reduces_half = false;
  // Matches messages by their tag. Else: only tag 0 is accepted.
  bool tags = true;
  // bit_and, bit_or and bit_xor. Else: refused.
  bool bitwise = true;
  // Ends all pending operations of the engine, so that it no longer accesses any tensor and every Work completes soon.
  // Called once, from another thread, when the group has failed. Empty: Lockstep completes the operations at once and
  // keeps their tensors until the engine has finished with them.
  std::function<void(C10dBackend&)> close = {};
};

using C10dBackendFactory = std::function<c10::intrusive_ptr<C10dBackend>(const C10dBackendArguments&)>;

// Registers `name` (lower case) as a backend. Call it before init_process_group(). Throws Error if the name is taken,
// or if this LibTorch was built without c10d.
void register_c10d_backend(const std::string& name, C10dBackendFactory factory, C10dBackendTraits traits = {});

// The names that init_process_group() accepts in this build, sorted: "gloo", "lockstep".
std::vector<std::string> available_backends();

}  // namespace lockstep
