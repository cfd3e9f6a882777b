// The texts of errors about gradients that did not arrive, arrived too often, or cannot be averaged.
//
// Pure functions of what the reducer has observed.
#pragma once

#include <string>
#include <vector>

#include "lockstep/ddp/gradient_synchronizer.h"

namespace lockstep::detail {

// The names of these parameters, the first ten in full.
std::string names_of(const NamedTensors& parameters, const std::vector<std::size_t>& indices);

// A pass that did not finish, although its backward did. `missing`: parameters without a gradient. `again`: some
// arrived after all had been averaged.
std::string unfinished_pass_error(const DdpOptions& options, int rank, const NamedTensors& parameters,
                                  const std::vector<std::size_t>& missing, bool again);

// A gradient that arrived more often than expected. `skipped`: it was taken for unused.
std::string surplus_gradient_error(const DdpOptions& options, const std::string& name, bool skipped);

// Why this gradient cannot be averaged; empty if it can. `delivered`: autograd had one for the parameter.
std::string gradient_error(const DdpOptions& options, const std::string& name, const at::Tensor& gradient,
                           bool delivered);

}  // namespace lockstep::detail
