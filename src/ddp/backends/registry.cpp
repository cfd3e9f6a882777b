#include "ddp/backends/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>

#include "base/log.h"
#include "ddp/backends/c10d/c10d_engine.h"
#include "ddp/backends/device_router.h"
#include "ddp/backends/engine/engine_group.h"
#include "ddp/backends/mpi/mpi_group.h"

namespace lockstep::detail {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, BackendEntry> entries;  // guarded by mutex
};

BackendEntry lockstep_backend() {
  return {[] { return Status(); },
          [](GroupRequest& request) { return std::make_shared<EngineGroup>(request.watch().group); }};
}

// MPI itself, through a plug-in.
BackendEntry mpi_backend(const std::string& name) {
  return {[name] { return mpi_available(name); },
          [name](GroupRequest& request) { return make_mpi_group(request.options(), name); }};
}

// The plug-in of the available MPI; without any, the MPI of a LibTorch that was built with one.
BackendEntry any_mpi_backend() {
  const BackendEntry ours = mpi_backend("mpi");
  const BackendEntry of_libtorch = mpi_of_libtorch_backend();
  return {
      [=] { return of_libtorch.available().ok() ? Status() : ours.available(); },
      [=](GroupRequest& request) { return ours.available().ok() ? ours.make(request) : of_libtorch.make(request); }};
}

// Never destroyed: groups may outlive static destructors.
Registry& registry() {
  static Registry* value = new Registry{.mutex = {},
                                        .entries = {{"lockstep", lockstep_backend()},
                                                    {"gloo", gloo_backend()},
                                                    {"mpi", any_mpi_backend()},
                                                    {"openmpi", mpi_backend("openmpi")},
                                                    {"mpich", mpi_backend("mpich")},
                                                    {"nccl", nccl_backend()},
                                                    {"ucc", ucc_backend()},
                                                    {"xccl", xccl_backend()}}};
  return *value;
}

std::optional<BackendEntry> find(const std::string& name) {
  std::lock_guard lock(registry().mutex);
  const auto found = registry().entries.find(name);
  if (found == registry().entries.end()) return std::nullopt;
  return found->second;
}

}  // namespace

GroupRequest GroupRequest::with_backend(std::string backend) const {
  GroupRequest other = *this;
  other.backend_ = std::move(backend);
  return other;
}

const WatchGroup& GroupRequest::watch() {
  if (!*watch_) *watch_ = make_watch_group(options_);
  return *watch_;
}

WatchGroup GroupRequest::own_watch() {
  WatchGroup own = watch();
  if (!shared_) return own;
  std::vector<int> all(static_cast<std::size_t>(own.group->size()));
  std::iota(all.begin(), all.end(), 0);
  own.group = own.group->new_group(all, own.group->name());
  return own;
}

void register_backend(const std::string& name, BackendEntry entry) {
  const auto spec = parse_backend_spec(name);
  throw_if_error(spec.status().with_context("register_backend"));
  if (spec->choices.size() != 1 || spec->per_device() || spec->choices.front().backend != name) {
    throw Error({StatusCode::invalid_argument,
                 fmt::format("register_backend: \"{}\" is not a name in lower case without spaces", name)});
  }
  std::lock_guard lock(registry().mutex);
  const auto found = registry().entries.find(name);
  if (found != registry().entries.end() && found->second.available().ok()) {
    throw Error({StatusCode::already_exists, fmt::format("register_backend: there is a backend \"{}\" already", name)});
  }
  registry().entries[name] = std::move(entry);
}

Status check_backend(const std::string& name) {
  const std::optional<BackendEntry> entry = find(name);
  const Status status =
      entry ? entry->available()
            : Status(StatusCode::not_found, fmt::format("there is no backend \"{}\" in this build", name));
  if (status.ok()) return status;
  return {status.code(), fmt::format("{}; it has: {}", status.message(), fmt::join(available_backends(), ", "))};
}

BackendSpec default_backend_spec() {
  const char* text = check_backend("nccl").ok() ? "cpu:lockstep,cuda:nccl" : "lockstep";
  return *parse_backend_spec(text);
}

BackendSpec with_cpu_beside(const BackendSpec& spec) {
  if (spec.choices.size() != 1 || spec.per_device()) return spec;
  const std::string& backend = spec.choices.front().backend;
  const std::string device = find(backend)->device;
  if (device.empty()) return spec;
  return {.choices = {{"cpu", "lockstep"}, {device, backend}}};
}

BackendSpec requested_backend_spec(const ProcessGroupOptions& options) {
  const char* variable = std::getenv("LOCKSTEP_BACKEND");
  const bool from_environment = options.backend.empty() && variable != nullptr;
  const std::string context = from_environment ? "LOCKSTEP_BACKEND" : "init_process_group";
  const auto spec = parse_backend_spec(from_environment ? variable : options.backend);
  throw_if_error(spec.status().with_context(context));
  if (spec->choices.empty()) return default_backend_spec();
  for (const BackendSpec::Choice& choice : spec->choices)
    throw_if_error(check_backend(choice.backend).with_context(context));
  return with_cpu_beside(*spec);
}

std::shared_ptr<ProcessGroup> make_group_on(GroupRequest request) {
  throw_if_error(check_backend(request.backend()));
  return find(request.backend())->make(request);
}

std::shared_ptr<ProcessGroup> make_group(const ProcessGroupOptions& options) {
  const BackendSpec spec = requested_backend_spec(options);
  GroupRequest request(options, spec.choices.front().backend);
  request.set_by_default(options.backend.empty() && std::getenv("LOCKSTEP_BACKEND") == nullptr);
  if (!spec.per_device()) return make_group_on(request);
  request.set_shared();
  std::map<std::string, std::shared_ptr<ProcessGroup>> groups;
  BackendSpec made;
  for (const BackendSpec::Choice& choice : spec.choices) {
    GroupRequest own = request.with_backend(choice.backend);
    if (const auto agree = find(choice.backend)->agree) {
      const Status status = agree(own);
      if (!status.ok() && !own.by_default()) throw Error(status.with_context("init_process_group"));
      if (!status.ok()) {
        log_info("backend \"{}\" is left out: {}", choice.backend, status.message());
        continue;
      }
    }
    groups[choice.device] = make_group_on(std::move(own));
    made.choices.push_back(choice);
  }
  return std::make_shared<DeviceRouter>(made.to_string(), std::move(groups));
}

}  // namespace lockstep::detail

namespace lockstep {

std::vector<std::string> available_backends() {
  std::lock_guard lock(detail::registry().mutex);
  std::vector<std::string> names;
  for (const auto& [name, entry] : detail::registry().entries) {
    if (entry.available().ok()) names.push_back(name);
  }
  return names;
}

}  // namespace lockstep
