// Keeping the tensors of several replicas equal: the same list everywhere, rank 0's values, and the
// proof that they are the same. All functions are collective over the group. Tensors may be on any device that the
// group takes; what is compared (lists, hashes) goes over CPU tensors.
#pragma once

#include <string>
#include <vector>

#include "lockstep/ddp/gradient_synchronizer.h"

namespace lockstep::detail {

// Throws Error, on every rank, if the lists differ in number, names, shapes, types, kinds of device or in which of
// them need gradients; names the first difference and both sides.
void check_same_model(TensorGroup& group, const NamedTensors& parameters, const NamedTensors& buffers);

// Every rank's tensors become `root`'s. Small ones travel together.
void broadcast_tensors(TensorGroup& group, const std::vector<at::Tensor>& tensors, int root);
// The same, but only those travel that are not bit-identical everywhere already (by xxh3). Where all ranks made the
// model from one seed, or go on after the loss of a peer, that is none. Returns how many travelled.
std::size_t broadcast_differing(TensorGroup& group, const std::vector<at::Tensor>& tensors, int root);

// Throws Error, on every rank, naming the first tensor that is not bit-identical everywhere.
void check_identical(TensorGroup& group, const NamedTensors& parameters, const NamedTensors& buffers);

}  // namespace lockstep::detail
