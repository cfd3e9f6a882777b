// The tensors of a weights file of any format.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/files.h"
#include "ddp/snapshot/tensors.h"

namespace lockstep::detail {

struct WeightsFile {
  std::vector<checkpoint::FileBytes> bytes;  // the tensors point into them
  checkpoint::NamedTensors tensors;
  std::map<std::string, std::string> others;  // values that are not tensors, and what they are

  // `key` as in LoadWeightsOptions. Throws Error, which names the file.
  static WeightsFile read(const std::string& path, const std::string& key);
};

}  // namespace lockstep::detail
