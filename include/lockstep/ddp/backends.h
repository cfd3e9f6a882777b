// Which engines there are, and how a c10d engine of one's own becomes one.
//
//   lockstep::register_c10d_backend("mine", [](const lockstep::C10dBackendArguments& arguments) {
//     return c10::make_intrusive<MyBackend>(arguments.store, arguments.rank, arguments.size);
//   });
//   lockstep::init_process_group({.backend = "mine"});      // or LOCKSTEP_BACKEND=mine
//
// docs/backends.md says what an engine gets from Lockstep (the meeting, deadlines, errors that name who was
// lost) and what it must bring.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/version.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

// Only declared here, so that this header serves a LibTorch without c10d too.
namespace c10d {
class Backend;
class ProcessGroup;
class Store;
}  // namespace c10d

namespace lockstep {

// What LibTorch's engines derive from. The calls that Lockstep makes have the same names in both.
#if TORCH_VERSION_MAJOR >= 2
using C10dBackend = ::c10d::Backend;
#else
using C10dBackend = ::c10d::ProcessGroup;
#endif

struct C10dBackendArguments {
  // The job's own store, behind its secret, with keys that belong to this group alone.
  c10::intrusive_ptr<::c10d::Store> store;
  int rank = 0;
  int size = 1;
  // True if all ranks are on this host.
  bool one_host = true;
  // An address of this host that the other hosts reach; 127.0.0.1 on one host.
  std::string address;
  // For whatever waits in the engine. Longer than any deadline of Lockstep's own, which come first.
  std::chrono::milliseconds timeout;
  std::string group_name;
};

// What the engine can do. Where it cannot, Lockstep does it with what the engine has.
struct C10dBackendTraits {
  // The kind of tensor that it takes.
  c10::DeviceType device = c10::DeviceType::CPU;
  // Its Work::wait() orders the caller's stream after the operation instead of waiting for it (NCCL). It keeps what its
  // tensors are made of until it is done with them (record_stream), and its Work::isCompleted() tells when.
  bool stream_ordered = false;
  // ReduceOp::AVG. Else: sum, then division on every rank.
  bool averages = false;
  // _reduce_scatter_base. Else: all-reduce, of which each rank keeps its part.
  bool reduce_scatters = false;
  // _allgather_base. Else: allgather, into the parts of the output.
  bool gathers_flat = false;
  // Sums of float16 and bfloat16. Else: through float32, with twice the traffic.
  bool reduces_half = false;
  // Tells messages apart by their tag. Else: only tag 0 is taken.
  bool tags = true;
  // bit_and, bit_or and bit_xor. Else: refused.
  bool bitwise = true;
  // Ends everything that the engine has pending, so that it touches no tensor any more and every Work is soon
  // complete; called once, from another thread, when the group has failed. None: Lockstep completes the
  // operations at once and keeps their tensors until the engine is done with them.
  std::function<void(C10dBackend&)> close = {};
};

using C10dBackendFactory = std::function<c10::intrusive_ptr<C10dBackend>(const C10dBackendArguments&)>;

// Makes `name` (lower case) a backend. Before init_process_group. Throws Error if the name is taken, or if this
// LibTorch was built without c10d.
void register_c10d_backend(const std::string& name, C10dBackendFactory factory, C10dBackendTraits traits = {});

// The names that init_process_group takes here, in order: "gloo", "lockstep".
std::vector<std::string> available_backends();

}  // namespace lockstep
