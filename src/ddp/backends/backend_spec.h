// The backend that a user asks for: one for all tensors ("gloo"), or one for each kind of device
// ("cpu:lockstep,cuda:nccl"). Pure: parses the notation, and does not check which backends exist.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/status.h"

namespace lockstep::detail {

struct BackendSpec {
  struct Choice {
    std::string device;  // "cpu", "cuda", ...; empty: every device
    std::string backend;
    friend bool operator==(const Choice&, const Choice&) = default;
  };
  std::vector<Choice> choices;  // none: the default; one without a device, or one per device

  bool per_device() const { return !choices.empty() && !choices.front().device.empty(); }
  // As it would be written: "gloo", "cpu:lockstep,cuda:nccl".
  std::string to_string() const;
};

// Names are converted to lower case, and spaces around them are dropped; "" is the default. The error names the part
// that cannot be parsed and shows the notation.
Result<BackendSpec> parse_backend_spec(const std::string& text);

}  // namespace lockstep::detail
