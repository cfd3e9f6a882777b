// `lockstep run` on one of several hosts.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launch/launcher.h"
#include "support/hosts.h"

namespace lockstep::testing {

struct NodeOptions {
  std::vector<std::string> arguments = {};  // further ones, before the program
  std::vector<std::string> program = {};
  int endpoint = 0;  // the host where the nodes meet
  Environment environment = {};
};

inline constexpr int kEndpointPort = 29400;

inline std::unique_ptr<Launcher> start_node(const HostSet& hosts, int host, const NodeOptions& options) {
  std::vector<std::string> arguments = {"--rdzv-endpoint",
                                        fmt::format("{}:{}", HostSet::address(options.endpoint), kEndpointPort)};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  arguments.insert(arguments.end(), options.program.begin(), options.program.end());
  Environment environment = options.environment;
  environment.try_emplace("LOCKSTEP_SECRET", "the secret of a test, and no other one");
  return std::make_unique<Launcher>(
      arguments, environment,
      std::vector<std::string>{"nsenter", fmt::format("--net=/proc/{}/fd/{}", ::getpid(), hosts.namespace_fd(host))});
}

// The reports of all nodes, for failure messages.
inline std::string report_of(const std::vector<std::unique_ptr<Launcher>>& nodes) {
  std::string text;
  for (std::size_t i = 0; i < nodes.size(); ++i) text += fmt::format("--- node {}\n{}", i, nodes[i]->report());
  return text;
}

// A shell program: ranks of a world of this size wait; those of another size compute the sum.
inline std::vector<std::string> wait_in_world_of(int size) {
  return {"sh", "-c",
          fmt::format("if [ $WORLD_SIZE = {} ]; then echo waiting; exec sleep 600; fi; exec {}", size, SUM_RANK)};
}

}  // namespace lockstep::testing
