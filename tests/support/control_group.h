// A control group of this test: stops all of its processes at the same instant, or leaves them next to no processor
// time. Works with cgroups of version 1 and 2. Removed by the destructor, which first moves its processes
// to the parent group.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "lockstep/base/status.h"

namespace lockstep::testing {

class ControlGroup {
 public:
  enum class Kind { freezer, cpu };
  // `unavailable` with the reason if this process may not create one.
  static Result<ControlGroup> create(Kind kind);
  ControlGroup(ControlGroup&& other) noexcept;
  ControlGroup& operator=(ControlGroup&&) = delete;
  ~ControlGroup();

  // Processes that have ended meanwhile are skipped.
  void add(const std::vector<pid_t>& processes);
  // Kind::freezer: no thread of the group runs until thaw().
  Status freeze();
  Status thaw();
  // Kind::cpu: one hundredth of one processor for all of them together.
  Status starve();

 private:
  ControlGroup(std::string parent, std::string path, bool version_2);
  std::string parent_;
  std::string path_;
  bool version_2_;
};

}  // namespace lockstep::testing
