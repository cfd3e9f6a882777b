// Which parameters got a gradient since the last pass: on this rank, and on any rank.
//
// A parameter that no rank used keeps its .grad as it is; one that some rank used gets the average everywhere. Ranks
// exchange their lists only if asked to (find_unused_parameters, the first pass of static_graph). Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

class UsedParameters {
 public:
  UsedParameters(std::shared_ptr<ProcessGroup> group, std::size_t parameter_count);

  void mark(std::size_t parameter) { here_[parameter] = 1; }
  bool here(std::size_t parameter) const { return here_[parameter] != 0; }
  // As of the last exchange; true for all parameters before the first one.
  bool anywhere(std::size_t parameter) const { return anywhere_[parameter] != 0; }
  std::int64_t unused_here() const;

  // Starts the exchange. Collective.
  void begin_exchange();
  // Waits for it; returns at once if no exchange is in flight.
  void end_exchange();
  // A pass is over: nothing was used since.
  void reset();

 private:
  const std::shared_ptr<ProcessGroup> group_;
  std::vector<std::uint8_t> here_;
  std::vector<std::uint8_t> anywhere_;
  at::Tensor map_;  // defined while an exchange is in flight
  Work exchange_;
};

}  // namespace lockstep::detail
