// The value of `lockstep doctor --hosts`. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/net/socket.h"

namespace lockstep::doctor {

// "gpu1,gpu2:29500", with Slurm's ranges ("gpu[01-03,07]:29500"), and IPv6 addresses with or without brackets (with, if
// a port follows). invalid_argument names the entry: not a host, of a user ("me@gpu1"), or listed twice.
Result<std::vector<HostPort>> parse_host_list(const std::string& text, std::uint16_t default_port);

}  // namespace lockstep::doctor
