// Labels of collectives: on Lockstep's engine, ranks whose operations differ only in their label get a mismatch error.
//
// Two models of one shape issue the same operations. A label per model keeps one's gradients from being averaged with
// the other's if ranks reach them in different orders. The number of the pass is a part of it, so that gradients of
// different steps are not averaged either.
#pragma once

#include <cstdint>

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

// `part` of a model: a pass, or one of its tensors. Above 0 for every model above 0.
int label_of(int model, std::int64_t part);

}  // namespace lockstep::detail
