// Makes the tensors of every rank equal to one rank's, in each run.
//
// Tensors of one type and device are sent together, in the group's memory, so that peers on the host read it in place.
// That memory is allocated once and used for every run (unless it is large), because registering memory with all peers
// costs more than sending a few small tensors. Types that the group cannot reduce are sent as bytes.
#pragma once

#include <vector>

#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

// The group must outlive it. Not thread-safe.
class TensorBroadcast {
 public:
  TensorBroadcast(ProcessGroup& group, const std::vector<at::Tensor>& tensors);

  // Every rank's tensors become `root`'s, except on ranks that drop what they receive. Collective. Tensors that were
  // converted since the last run are packed again.
  enum class Received { kept, dropped };
  void run(int root, Received received = Received::kept);
  bool empty() const { return tensors_.empty(); }

 private:
  struct Pack {
    std::vector<at::Tensor> tensors;
    at::ScalarType type;
    at::Device device;
    at::Tensor flat;  // made by the first run that needs it
  };
  void make_packs();
  bool packs_fit() const;
  void run(Pack& pack, int root, Received received);

  ProcessGroup& group_;
  std::vector<at::Tensor> tensors_;
  std::vector<Pack> packs_;
};

}  // namespace lockstep::detail
