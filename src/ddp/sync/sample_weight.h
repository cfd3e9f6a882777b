// The weight of this rank's samples (DdpOptions::sample_weighted), for layers and losses that exchange gradients with
// other ranks themselves.
//
// DDP weights the gradients of parameters, after backward has computed them. Whatever adds up gradients over ranks has
// to weight its own contribution before, and to divide what it gets by its weight, which DDP multiplies it with later
// (add_weighted()).
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>

namespace lockstep::detail {

// Calling it may wait for the other ranks' numbers of samples. Null: gradients are not weighted.
using SampleWeight = std::shared_ptr<const std::function<double()>>;

// The weight of the forward or backward that runs on this thread, and after a forward that of the latest one with a
// weight that still waits for its backward: a loss may communicate too.
SampleWeight sample_weight();
// Sets it for this thread, for as long as the caller keeps `weight`.
void set_sample_weight(const SampleWeight& weight);

// Runs `add`, which adds up gradients over ranks, so that each rank's contribution to its input is weighted. A rank
// without samples contributes zeros, even if its gradient is NaN.
at::Tensor add_weighted(const SampleWeight& weight, const at::Tensor& gradient,
                        const std::function<at::Tensor(const at::Tensor&)>& add);

}  // namespace lockstep::detail
