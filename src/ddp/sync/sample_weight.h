// The weight of this rank's samples (DdpOptions::sample_weighted) in the forward or backward that runs on this thread:
// for layers that exchange gradients with other ranks themselves.
//
// DDP weights the gradients of parameters, after backward has computed them. A layer that adds up gradients over ranks
// has to weight its own contribution before, and to divide what it gets by its weight, which DDP multiplies it with
// later.
#pragma once

#include <functional>
#include <memory>

namespace lockstep::detail {

// Calling it may wait for the other ranks' numbers of samples. Null: gradients are not weighted.
using SampleWeight = std::shared_ptr<const std::function<double()>>;

// Sets it for this thread, for as long as the caller keeps `weight`.
void set_sample_weight(const SampleWeight& weight);
SampleWeight sample_weight();

}  // namespace lockstep::detail
