// One operation of the progress thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "collectives/descriptor.h"
#include "communicator/work_state.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "mpi/plugin_abi.h"

namespace lockstep::mpi {

struct ChannelOperation {
  // What must be equal on all ranks; the channel sets its number. None: a message.
  std::optional<OpDescriptor> collective = {};
  std::string text = {};  // of a message: "send of 100 f32 to rank 1 with tag 0"
  std::chrono::milliseconds timeout{0};
  // Starts it (a call of the plug-in); on the progress thread.
  std::function<int(lockstep_mpi_request**)> start;
  // The second call of an operation that takes two, after the first is complete. May be empty.
  std::function<int(lockstep_mpi_request**)> then = {};
  // After success, on the progress thread; `received` counts for recv. May be empty.
  std::function<Status(std::size_t received)> finish = {};
  // Owns the buffers. Kept until MPI has finished with them; for ever, if a failed group leaves a request behind.
  std::shared_ptr<void> memory = {};

  // Set by the channel.
  std::shared_ptr<detail::WorkState> work = {};
  Deadline::Clock::time_point issued = {};
  Deadline deadline = Deadline::at({});
  lockstep_mpi_request* request = nullptr;
};

}  // namespace lockstep::mpi
