#include "rendezvous/environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <climits>
#include <cstdlib>
#include <vector>

#include "rendezvous/scheduler_environment.h"
#include "rendezvous/whole_number.h"

namespace lockstep {
namespace {

Status wrong(std::string message) { return Status(StatusCode::invalid_argument, std::move(message)); }

Result<std::optional<int>> number_from(const Environment& environment, const char* name, int minimum, int maximum) {
  const auto text = environment(name);
  if (!text) return std::optional<int>();
  const auto number = parse_whole_number(fmt::format("the environment variable {}", name), *text, minimum, maximum);
  if (!number.ok()) return number.status();
  return std::optional<int>(*number);
}

// A number that two sources may provide.
struct Source {
  std::optional<int> value;
  std::string name;
};

Result<int> one_of(const Source& first, const Source& second) {
  if (first.value && second.value && *first.value != *second.value) {
    return wrong(fmt::format("{} is {}, but {} is {}; set only one of them, or both to the same value", first.name,
                             *first.value, second.name, *second.value));
  }
  if (first.value) return *first.value;
  if (second.value) return *second.value;
  return wrong(fmt::format("neither {} nor {} is set; set one of them", first.name, second.name));
}

Status check_option(const std::optional<int>& value, const char* name, int minimum, int maximum) {
  if (!value || (*value >= minimum && *value <= maximum)) return {};
  return wrong(fmt::format("{} is {}; expected a whole number from {} to {}", name, *value, minimum, maximum));
}

Status check_local(const Environment& environment, int world_size) {
  const auto local_rank = number_from(environment, "LOCAL_RANK", 0, kMaxWorldSize - 1);
  if (!local_rank.ok()) return local_rank.status();
  const auto local_world_size = number_from(environment, "LOCAL_WORLD_SIZE", 1, kMaxWorldSize);
  if (!local_world_size.ok()) return local_world_size.status();
  const int local_limit = local_world_size->value_or(world_size);
  if (local_limit > world_size) {
    return wrong(fmt::format("LOCAL_WORLD_SIZE is {}, but WORLD_SIZE is {}; expected at most that many on one host",
                             local_limit, world_size));
  }
  if (*local_rank && **local_rank >= local_limit) {
    return wrong(fmt::format("LOCAL_RANK is {}, but {} is {}; expected a local rank below it", **local_rank,
                             *local_world_size ? "LOCAL_WORLD_SIZE" : "WORLD_SIZE", local_limit));
  }
  return {};
}

// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, if they are set.
Result<InitMethod> read_variables(const Environment& environment) {
  const auto rank = number_from(environment, "RANK", 0, kMaxWorldSize - 1);
  if (!rank.ok()) return rank.status();
  const auto world_size = number_from(environment, "WORLD_SIZE", 1, kMaxWorldSize);
  if (!world_size.ok()) return world_size.status();
  const auto port = number_from(environment, "MASTER_PORT", 1, 65535);
  if (!port.ok()) return port.status();
  const auto host = environment("MASTER_ADDR");
  if (host && host->empty()) {
    return wrong("the environment variable MASTER_ADDR is ''; expected the name or address of the host of rank 0");
  }
  InitMethod method;
  method.rank = *rank;
  method.world_size = *world_size;
  method.host = host.value_or("");
  method.port = static_cast<std::uint16_t>(port->value_or(0));
  return method;
}

// Values of a scheduler replace variables that are not set.
Status complete_by(const SchedulerPlacement& placement, InitMethod* method) {
  method->rank = placement.rank;
  method->world_size = placement.world_size;
  if (method->host.empty()) method->host = placement.master_host;
  if (method->port == 0) method->port = placement.master_port;
  if (!method->host.empty()) return {};
  return wrong(fmt::format(
      "{} started this process as rank {} of {} on several hosts, but does not define which of them has rank "
      "0; set MASTER_ADDR to that host for all ranks",
      placement.scheduler, placement.rank, placement.world_size));
}

Status check_complete(const InitMethod& method, const InitOptions& options, const Environment& environment) {
  const bool alone = method.world_size.value_or(options.world_size.value_or(0)) == 1;
  const bool has_host = !method.host.empty();
  const bool has_port = method.port != 0;
  std::vector<std::string> missing;
  if (!method.rank && !options.rank) missing.emplace_back("RANK");
  if (!method.world_size && !options.world_size) missing.emplace_back("WORLD_SIZE");
  if (!has_host && !alone) missing.emplace_back("MASTER_ADDR");
  if (!has_port && !alone) missing.emplace_back("MASTER_PORT");
  if (!missing.empty()) {
    return wrong(fmt::format(
        "init_method env:// needs the environment variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; not set: "
        "{}. Start the program with `lockstep run`, which sets them, or set them for every process (for one process "
        "alone RANK=0 WORLD_SIZE=1 is enough).{}",
        fmt::join(missing, ", "), slurm_hint(environment)));
  }
  if (has_host && !has_port) return wrong("MASTER_ADDR is set, but MASTER_PORT is not; set both or neither");
  if (!has_host && has_port) return wrong("MASTER_PORT is set, but MASTER_ADDR is not; set both or neither");
  return {};
}

// The counterpart of a tcp:// URL. `scheduler` is set if one provided the values.
Result<InitMethod> method_from_environment(const InitOptions& options, const Environment& environment,
                                           std::string* scheduler) {
  auto method = read_variables(environment);
  if (!method.ok()) return method;
  if (!method->rank && !method->world_size && !options.rank && !options.world_size) {
    const auto placement = find_scheduler_placement(environment);
    if (!placement.ok()) return placement.status();
    if (*placement) {
      LOCKSTEP_RETURN_IF_ERROR(complete_by(**placement, &*method));
      *scheduler = (*placement)->scheduler;
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(check_complete(*method, options, environment));
  return method;
}

Status read_store_settings(const Environment& environment, Placement* placement) {
  const auto served = number_from(environment, "LOCKSTEP_STORE_IS_SERVED", 0, 1);
  if (!served.ok()) return served.status();
  placement->store_is_served = served->value_or(0) == 1;
  const auto fd = number_from(environment, "LOCKSTEP_STORE_FD", 0, INT_MAX);
  if (!fd.ok()) return fd.status();
  placement->store_fd = *fd;
  if (placement->store_is_served && placement->store_fd) {
    return wrong(
        fmt::format("LOCKSTEP_STORE_IS_SERVED is 1, but LOCKSTEP_STORE_FD is {}; the store is either already served or "
                    "to be served "
                    "on that socket",
                    *placement->store_fd));
  }
  if (placement->store_is_served && placement->scheme != InitScheme::file && placement->master_host.empty()) {
    return wrong("LOCKSTEP_STORE_IS_SERVED is 1, but MASTER_ADDR and MASTER_PORT are not set");
  }
  return {};
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

Result<Placement> find_placement(const InitOptions& options, const Environment& environment) {
  LOCKSTEP_RETURN_IF_ERROR(check_option(options.rank, "InitOptions::rank", 0, kMaxWorldSize - 1));
  LOCKSTEP_RETURN_IF_ERROR(check_option(options.world_size, "InitOptions::world_size", 1, kMaxWorldSize));
  auto method = parse_init_method(options.init_method);
  if (!method.ok()) return method.status();
  const bool from_environment = method->scheme == InitScheme::env;
  std::string scheduler;
  if (from_environment) {
    method = method_from_environment(options, environment, &scheduler);
    if (!method.ok()) return method.status();
  }

  const std::string rank_name = from_environment ? "RANK" : fmt::format("rank= of '{}'", options.init_method);
  const std::string size_name =
      from_environment ? "WORLD_SIZE" : fmt::format("world_size= of '{}'", options.init_method);
  const auto rank = one_of({method->rank, rank_name}, {options.rank, "InitOptions::rank"});
  if (!rank.ok()) return rank.status();
  const auto world_size = one_of({method->world_size, size_name}, {options.world_size, "InitOptions::world_size"});
  if (!world_size.ok()) return world_size.status();
  if (*rank >= *world_size) {
    return wrong(fmt::format("{} is {}, but {} is {}; expected a rank from 0 to {}",
                             method->rank ? rank_name : "InitOptions::rank", *rank,
                             method->world_size ? size_name : "InitOptions::world_size", *world_size, *world_size - 1));
  }
  if (from_environment) LOCKSTEP_RETURN_IF_ERROR(check_local(environment, *world_size));

  Placement placement{.scheme = method->scheme,
                      .rank = *rank,
                      .world_size = *world_size,
                      .master_host = method->host,
                      .master_port = method->port,
                      .path = method->path,
                      .scheduler = scheduler,
                      .store_is_served = false,
                      .store_fd = std::nullopt};
  LOCKSTEP_RETURN_IF_ERROR(read_store_settings(environment, &placement));
  return placement;
}

}  // namespace lockstep
