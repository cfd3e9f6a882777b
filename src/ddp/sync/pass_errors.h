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

// A backward that threw after gradients had arrived.
std::string half_done_error(int rank);
// A forward that should be synchronised, but has no output that needs a gradient.
std::string no_output_error(int rank);
// A gradient from a backward without a forward through DDP.
std::string foreign_gradient_error(const std::string& name);
// A backward without any gradient.
std::string nothing_to_average_error(int rank);
// With sample_weighted: a gradient that arrived before the backward reached the outputs; a backward that did not reach
// them; one that goes through forwards of different weights.
std::string early_gradient_error(int rank);
std::string unweighted_error(int rank);
std::string unequal_weights_error(int rank, double first, double second);

// What may be the reason that ranks called different operations; empty if unknown. `caught`: an exception of a backward
// of this rank was caught. `several_models`: of this group.
std::string mismatch_context(int rank, bool caught, bool several_models);

}  // namespace lockstep::detail
