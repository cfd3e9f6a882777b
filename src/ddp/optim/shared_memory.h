// Parameters that share memory, which optimizers that divide the work between ranks or threads cannot update.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::detail {

// Two of `parameters`, by index, that have memory in common; views of different parts of one block do not.
std::optional<std::pair<std::size_t, std::size_t>> find_shared_memory(const std::vector<at::Tensor>& parameters);

}  // namespace lockstep::detail
