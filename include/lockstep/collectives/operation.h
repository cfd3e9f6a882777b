// One operation of a group as data. The named calls of Communicator and ProcessGroup (all_reduce(), send(), ...) are
// shorthands that create one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "lockstep/collectives/call_options.h"
#include "lockstep/collectives/types.h"

namespace lockstep {

// The collectives, and the two ends of a message.
enum class OperationKind : std::uint8_t {
  barrier,
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  all_gather_v,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  send,
  recv,
};
std::string_view to_string(OperationKind kind);  // "all_reduce"
// True for the kinds that combine elements with a ReduceOp.
bool reduces(OperationKind kind);
// False for send and recv, which are not ordered with respect to the collectives.
bool is_collective(OperationKind kind);

// The source of a message that may come from any rank.
inline constexpr int kAnyRank = -1;

// The call of the same name in communicator.h documents what each kind reads and writes. An operation in place has the
// same memory as input and output.
struct Operation {
  OperationKind kind = OperationKind::barrier;
  ConstBuffer input = {};
  Buffer output = {};
  ReduceOp op = ReduceOp::sum;               // of the kinds that reduce
  int peer = -1;                             // the root, the destination of a send, or the source of a recv
  int tag = 0;                               // of send and recv; of a collective: a label, the same on all ranks
  std::span<const std::size_t> counts = {};  // of all_gather_v: elements from each rank
  int* source = nullptr;                     // of recv_any: gets the sender's rank
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;

  static Operation all_reduce(ConstBuffer input, Buffer output, const ReduceOptions& options = {});
  static Operation all_reduce(Buffer data, const ReduceOptions& options = {});
  static Operation reduce(ConstBuffer input, Buffer output, int root, const ReduceOptions& options = {});
  static Operation reduce(Buffer data, int root, const ReduceOptions& options = {});
  static Operation broadcast(Buffer data, int root, const CallOptions& options = {});
  static Operation all_gather(ConstBuffer input, Buffer output, const CallOptions& options = {});
  static Operation all_gather_v(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                                const CallOptions& options = {});
  static Operation reduce_scatter(ConstBuffer input, Buffer output, const ReduceOptions& options = {});
  static Operation gather(ConstBuffer input, Buffer output, int root, const CallOptions& options = {});
  static Operation scatter(ConstBuffer input, Buffer output, int root, const CallOptions& options = {});
  static Operation all_to_all(ConstBuffer input, Buffer output, const CallOptions& options = {});
  static Operation barrier(const CallOptions& options = {});
  static Operation send(ConstBuffer data, int destination, int tag = 0, const CallOptions& options = {});
  static Operation recv(Buffer data, int source, int tag = 0, const CallOptions& options = {});
  static Operation recv_any(Buffer data, int* source, int tag = 0, const CallOptions& options = {});
};

}  // namespace lockstep
