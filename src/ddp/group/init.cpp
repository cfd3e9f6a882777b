#include "lockstep/ddp/init.h"

#include <algorithm>
#include <mutex>

#include "ddp/backends/engine/engine_group.h"
#include "ddp/backends/registry.h"
#include "ddp/group/default_group.h"

namespace lockstep {

namespace {

struct Default {
  std::mutex mutex;
  std::shared_ptr<ProcessGroup> group;  // guarded by mutex
};

// Never destroyed: a group that still exists when the process exits must not notify its peers from a
// static destructor, while what its threads use is already being destroyed.
Default& the_default() {
  static Default* value = new Default;
  return *value;
}

std::shared_ptr<ProcessGroup> current() {
  std::lock_guard lock(the_default().mutex);
  return the_default().group;
}

}  // namespace

std::shared_ptr<ProcessGroup> make_process_group(std::shared_ptr<Communicator> group) {
  return std::make_shared<detail::EngineGroup>(std::move(group));
}

std::shared_ptr<ProcessGroup> init_process_group(const ProcessGroupOptions& options) {
  if (is_initialized()) {
    throw Error({StatusCode::already_exists,
                 "init_process_group: there is a default group already; call destroy_process_group() first"});
  }
  std::shared_ptr<ProcessGroup> group = detail::make_group(options);
  std::lock_guard lock(the_default().mutex);
  the_default().group = group;
  return group;
}

void destroy_process_group() {
  std::shared_ptr<ProcessGroup> group;
  {
    std::lock_guard lock(the_default().mutex);
    group.swap(the_default().group);
  }
}

DefaultGroupScope::DefaultGroupScope(std::shared_ptr<ProcessGroup> group) {
  std::lock_guard lock(the_default().mutex);
  the_default().group = std::move(group);
}

DefaultGroupScope::~DefaultGroupScope() { destroy_process_group(); }

bool is_initialized() { return current() != nullptr; }

std::shared_ptr<ProcessGroup> group_or_default(const std::shared_ptr<ProcessGroup>& group) {
  if (group) {
    group->require_member();
    return group;
  }
  if (std::shared_ptr<ProcessGroup> found = current()) return found;
  throw Error({StatusCode::not_found,
               "there is no default process group: call lockstep::init_process_group() first, or pass a group"});
}

int get_rank(const std::shared_ptr<ProcessGroup>& group) { return (group ? group : group_or_default())->rank(); }

int get_world_size(const std::shared_ptr<ProcessGroup>& group) { return (group ? group : group_or_default())->size(); }

const std::string& get_backend(const std::shared_ptr<ProcessGroup>& group) {
  return (group ? group : group_or_default())->backend();
}

std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks, const std::string& name) {
  std::vector<int> ascending = ranks;
  std::sort(ascending.begin(), ascending.end());
  return group_or_default()->new_group(ascending, name);
}

}  // namespace lockstep
