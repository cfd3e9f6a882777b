// The implementation of Communicator.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "communicator/collective_lane.h"
#include "communicator/group_core.h"
#include "communicator/message/message_lane.h"
#include "communicator/outer_operations.h"
#include "lockstep/communicator/communicator.h"
#include "rendezvous/rendezvous.h"

namespace lockstep {

// Forms the mesh of a (sub)group: all `size` ranks call it with the same scope.
using MeshFactory = std::function<Result<Mesh>(const std::string& scope, int rank, int size, Deadline deadline)>;

class Communicator::Impl {
 public:
  // Throws Error.
  static std::shared_ptr<Communicator> make(MeshFactory factory, const std::string& scope, int rank, int size,
                                            const CommunicatorOptions& options);
  // The two halves of Communicator::create, for callers that also need the store. Throw Error.
  static MeetingPoint find(const InitOptions& options);
  static std::shared_ptr<Communicator> at(const MeetingPoint& where, const CommunicatorOptions& options);
  // The same with a secret that is not the environment's.
  static std::shared_ptr<Communicator> at(const MeetingPoint& where, const CommunicatorOptions& options,
                                          const Secret& secret);
  // Unique in time, and the same on all ranks of the group.
  static const std::string& group_id(const Communicator& group) { return group.impl_->core->group_id(); }
  // For a group that only watches the ranks: it must not run collectives.
  static std::unique_ptr<OuterOperations> watch_outer(const Communicator& group) {
    return std::make_unique<OuterOperations>(group.impl_->core);
  }
  Impl(MeshFactory factory, Mesh mesh, const CommunicatorOptions& options, Selector selector);
  ~Impl();

  int rank() const { return core->topology().rank; }
  int size() const { return core->topology().size(); }

  // Checks the arguments; throws Error(invalid_argument).
  IssuedCollective request(const Operation& operation) const;
  // Blocks until the operation is complete. Throws Error.
  void run(const Operation& operation);
  Work submit_message(const Operation& operation);

  const MeshFactory factory;
  const std::shared_ptr<GroupCore> core;
  CollectiveLane collectives;
  MessageLane messages;

  std::mutex mutex;
  std::map<std::vector<int>, int> subgroups;  // guarded by mutex: how often each list of ranks was used
};

}  // namespace lockstep
