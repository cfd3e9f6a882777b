// Labels of collectives: on Lockstep's engine, ranks whose operations differ only in their label get a mismatch error.
//
// Two models of one shape issue the same operations. A label per model keeps one's gradients from being averaged with
// the other's if ranks reach them in different orders.
#pragma once

#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

// While it exists, the collectives that this thread issues have this label, on every group; 0: none.
class OperationLabel {
 public:
  explicit OperationLabel(int label);
  ~OperationLabel();
  OperationLabel(const OperationLabel&) = delete;
  OperationLabel& operator=(const OperationLabel&) = delete;

  static int current();

 private:
  int before_;
};

// A new label, above 0 and the same on all ranks. Collective.
int agree_on_label(ProcessGroup& group);
// How many of them this process has taken part in.
int labels_so_far();

}  // namespace lockstep::detail
