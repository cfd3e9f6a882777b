// The texts that options of `lockstep run` may have. Each error is a sentence that names `source` (the option or the
// variable), the text, and what was expected. Pure.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "launch/options.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

Result<bool> parse_flag(const std::string& source, const std::string& text);                       // 0, 1
Result<std::pair<int, int>> parse_node_range(const std::string& source, const std::string& text);  // N or MIN:MAX
Result<std::chrono::milliseconds> parse_seconds(const std::string& source, const std::string& text);
Result<StreamChoice> parse_streams(const std::string& source, const std::string& text);    // 0..3 or "0:1,1:2"
Result<std::vector<int>> parse_ranks(const std::string& source, const std::string& text);  // "0,2"
// "key=value,...": the join timeout of torchrun's --rdzv-conf (timeout or join_timeout), if it is there.
Result<std::optional<std::chrono::milliseconds>> parse_rendezvous_conf(const std::string& source,
                                                                       const std::string& text);

}  // namespace lockstep::launch
