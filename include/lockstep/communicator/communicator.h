// Communicator: a group of ranks on Lockstep's own engine. The engine's API.
//
// All ranks of a group issue the same collectives in the same order, and they run in the order of
// issue. Calls may come from any thread; with several threads, the program must ensure the order.
// The plain form of a call blocks until complete and throws Error; the _async form returns a Work at
// once. Buffers must stay valid, and must not be accessed, until the operation is complete.
//
// When an operation fails (a peer is lost, a deadline passes, ranks disagree, abort()), the group
// is dead on every rank: pending operations end with the error, and later calls throw it at once.
// The survivors may form a new group in the same processes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/collectives/call_options.h"
#include "lockstep/collectives/operation.h"
#include "lockstep/collectives/types.h"
#include "lockstep/communicator/registered_memory.h"
#include "lockstep/communicator/work.h"
#include "lockstep/rendezvous/init_options.h"
#include "lockstep/store/store.h"

namespace lockstep {

class Communicator {
 public:
  // Finds the other ranks through options.init_method (the environment by default) and connects to them. Blocks until
  // all ranks have joined, at most for init_timeout. Throws Error.
  static std::shared_ptr<Communicator> create(const InitOptions& options = {});
  // The same through a store of the caller's. The group keeps `store` for its subgroups.
  static std::shared_ptr<Communicator> create(std::shared_ptr<Store> store, int rank, int world_size,
                                              const CommunicatorOptions& options = {});
  // `size` ranks as threads of this process: element r is for the threads of rank r.
  static std::vector<std::shared_ptr<Communicator>> create_threads(int size, const CommunicatorOptions& options = {});

  // Waits for the operations that were issued (within each one's deadline), notifies the peers, and
  // frees everything but RegisteredMemory.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;
  int local_rank() const;
  int local_size() const;
  const std::string& name() const;
  // The hosts and the ranks on each, human-readable.
  std::string describe() const;
  // "rank 2 (host node7, pid 4711)"
  std::string describe_rank(int rank) const;
  // The selector's table: which algorithm runs at which size.
  std::string algorithm_table() const;

  // Issues any operation. The calls below are shorthands for it; their _async forms return what it returns.
  Work submit(const Operation& operation);

  // In place.
  void all_reduce(Buffer data, const ReduceOptions& options = {});
  Work all_reduce_async(Buffer data, const ReduceOptions& options = {});
  // Out of place.
  void all_reduce(ConstBuffer input, Buffer output, const ReduceOptions& options = {});
  Work all_reduce_async(ConstBuffer input, Buffer output, const ReduceOptions& options = {});

  // The result arrives on `root`; `output` is used there only and may equal the input.
  void reduce(ConstBuffer input, Buffer output, int root, const ReduceOptions& options = {});
  Work reduce_async(ConstBuffer input, Buffer output, int root, const ReduceOptions& options = {});

  void broadcast(Buffer data, int root, const CallOptions& options = {});
  Work broadcast_async(Buffer data, int root, const CallOptions& options = {});

  // output.count == size() * input.count; rank r's block starts at r * input.count.
  void all_gather(ConstBuffer input, Buffer output, const CallOptions& options = {});
  Work all_gather_async(ConstBuffer input, Buffer output, const CallOptions& options = {});
  // counts[r] elements from rank r, one after the other in `output`. All ranks pass equal counts.
  void all_gather_v(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                    const CallOptions& options = {});
  Work all_gather_v_async(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                          const CallOptions& options = {});

  // input.count == size() * output.count; rank r gets the reduction of block r.
  void reduce_scatter(ConstBuffer input, Buffer output, const ReduceOptions& options = {});
  Work reduce_scatter_async(ConstBuffer input, Buffer output, const ReduceOptions& options = {});

  // `output` on root only: size() * input.count elements.
  void gather(ConstBuffer input, Buffer output, int root, const CallOptions& options = {});
  Work gather_async(ConstBuffer input, Buffer output, int root, const CallOptions& options = {});
  // `input` on root only: size() * output.count elements.
  void scatter(ConstBuffer input, Buffer output, int root, const CallOptions& options = {});
  Work scatter_async(ConstBuffer input, Buffer output, int root, const CallOptions& options = {});

  // Block s of `input` goes to rank s; block r of `output` comes from rank r. All blocks have the same size.
  void all_to_all(ConstBuffer input, Buffer output, const CallOptions& options = {});
  Work all_to_all_async(ConstBuffer input, Buffer output, const CallOptions& options = {});

  void barrier(const CallOptions& options = {});
  Work barrier_async(const CallOptions& options = {});

  // Messages: matched by (sender, tag) in order of issue, independent of the order of collectives.
  // A send is complete when its buffer may be reused. Sizes must be equal on both sides.
  void send(ConstBuffer data, int destination, int tag = 0, const CallOptions& options = {});
  Work send_async(ConstBuffer data, int destination, int tag = 0, const CallOptions& options = {});
  void recv(Buffer data, int source, int tag = 0, const CallOptions& options = {});
  Work recv_async(Buffer data, int source, int tag = 0, const CallOptions& options = {});
  // The first message with this tag from any rank; returns the sender's rank. A recv() that was issued before it takes
  // precedence for messages of its source.
  int recv_any(Buffer data, int tag = 0, const CallOptions& options = {});
  // `source` gets the sender's rank before the operation is complete, and must stay valid until then.
  Work recv_any_async(Buffer data, int* source, int tag = 0, const CallOptions& options = {});

  // A subgroup of the given ranks, in the order given; runs concurrently with its parent. All of its
  // ranks, and no others, must call it. The same list may be used again for another subgroup.
  std::shared_ptr<Communicator> new_group(std::span<const int> ranks, const std::string& name = "");
  // Collective: ranks of equal `color` form a subgroup, ordered by (key, rank). Negative: no group (null).
  std::shared_ptr<Communicator> split(int color, int key = 0, const std::string& name = "");

  // Registered memory: collectives on it need no copy on the host. Not a collective.
  std::shared_ptr<RegisteredMemory> allocate(std::size_t bytes);

  // Ends the group on every rank: pending and later operations fail with `reason`. From any thread.
  void abort(const std::string& reason);
  // The same with an existing error: every rank's operations fail with its code and message.
  void abort(const Status& reason);
  // Ok until the group fails, then the error.
  Status health() const;
  // Becomes and stays readable when the group fails, for poll(2). Owned by the group.
  int failure_fd() const;

  class Impl;

 private:
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
