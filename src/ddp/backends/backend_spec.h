// What a user asks for as backend: one for all tensors ("gloo"), or one for each kind of device
// ("cpu:lockstep,cuda:nccl"). Pure: knows the notation, not which backends there are.
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

// Names are taken in lower case, spaces around them dropped; "" is the default. The error says which part
// cannot be read and how it should be written.
Result<BackendSpec> parse_backend_spec(const std::string& text);

}  // namespace lockstep::detail
