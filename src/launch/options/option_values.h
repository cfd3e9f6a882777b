// Parses the values of `lockstep run`'s options. Each error message is one line that names `source` (the option or the
// variable), the text, and what was expected. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/options/options.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

Result<bool> parse_flag(const std::string& source, const std::string& text);                       // 0, 1
Result<std::pair<int, int>> parse_node_range(const std::string& source, const std::string& text);  // N or MIN:MAX
Result<std::chrono::milliseconds> parse_seconds(const std::string& source, const std::string& text);
Result<StreamChoice> parse_streams(const std::string& source, const std::string& text);    // 0..3 or "0:1,1:2"
Result<std::vector<int>> parse_ranks(const std::string& source, const std::string& text);  // "0,2"
// The keys of torchrun's --rdzv-conf, "key=value,...", that are used.
struct RendezvousConf {
  std::optional<std::chrono::milliseconds> start_timeout;  // join_timeout, or timeout
  std::optional<std::chrono::milliseconds> last_call_timeout;
};
Result<RendezvousConf> parse_rendezvous_conf(const std::string& source, const std::string& text);

}  // namespace lockstep::launch
