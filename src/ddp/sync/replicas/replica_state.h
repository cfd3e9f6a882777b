// Keeps the tensors of several replicas equal: checks that all ranks have the same list, sends rank 0's values, and
// verifies that they are the same. All functions are collective over the group. Tensors may be on any device that the
// group supports; what is compared (lists, hashes) is sent in CPU tensors.
#pragma once

#include <string>
#include <vector>

#include "lockstep/ddp/gradient_synchronizer.h"

namespace lockstep::detail {

// Throws Error, on every rank, if the lists differ in number, names, shapes, types, kinds of device, in which of
// them need gradients, or in the layout of these; names the first difference and both sides.
void check_same_model(ProcessGroup& group, const NamedTensors& parameters, const NamedTensors& buffers);

// Every rank's tensors become `root`'s. Only those are sent that are not bit-identical everywhere already (by xxh3):
// none if all ranks made the model from one seed, or continue after the loss of a peer. Returns how many were sent.
std::size_t broadcast_differing(ProcessGroup& group, const std::vector<at::Tensor>& tensors, int root);

// Throws Error, on every rank, naming the first tensor that is not bit-identical everywhere.
void check_identical(ProcessGroup& group, const NamedTensors& parameters, const NamedTensors& buffers);

}  // namespace lockstep::detail
