#include "ddp/group/operation_label.h"

namespace lockstep::detail {

namespace {

thread_local int label_of_thread = 0;

constexpr int kPartBits = 20;
constexpr int kMaxModels = 1 << (31 - kPartBits);

}  // namespace

OperationLabel::OperationLabel(int label) : before_(label_of_thread) { label_of_thread = label; }
OperationLabel::~OperationLabel() { label_of_thread = before_; }
int OperationLabel::current() { return label_of_thread; }

// Numbers that are too large begin again: neighbours in time always differ.
int label_of(int model, std::int64_t part) {
  return (model % kMaxModels) << kPartBits | static_cast<int>(part % (std::int64_t{1} << kPartBits));
}

}  // namespace lockstep::detail
