// The init_method URL, as in PyTorch: how the ranks find each other. Pure parsing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/status.h"

namespace lockstep {

enum class InitScheme { env, tcp, file };

struct InitMethod {
  InitScheme scheme = InitScheme::env;
  std::string host;  // tcp; IPv6 without its brackets
  std::uint16_t port = 0;
  std::string path;  // file; absolute
  std::optional<int> rank;
  std::optional<int> world_size;
};

// "env://", "tcp://host:port?rank=0&world_size=2" (IPv6 in brackets),
// "file:///path?rank=0&world_size=2"; both query keys are optional. Anything else is
// invalid_argument, naming the invalid part, its value and what is expected.
Result<InitMethod> parse_init_method(std::string_view url);

}  // namespace lockstep
