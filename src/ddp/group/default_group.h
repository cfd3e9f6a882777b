// Makes a group that init_process_group() did not create the default group for the length of a scope.
#pragma once

#include <memory>

#include "lockstep/ddp/process_group.h"

namespace lockstep {

class DefaultGroupScope {
 public:
  // There must be no default group.
  explicit DefaultGroupScope(std::shared_ptr<ProcessGroup> group);
  ~DefaultGroupScope();
  DefaultGroupScope(const DefaultGroupScope&) = delete;
  DefaultGroupScope& operator=(const DefaultGroupScope&) = delete;
};

}  // namespace lockstep
