#include "ddp/group/operation_label.h"

#include <atomic>

namespace lockstep::detail {

namespace {
thread_local int label_of_thread = 0;
std::atomic<int> labels{0};
}  // namespace

OperationLabel::OperationLabel(int label) : before_(label_of_thread) { label_of_thread = label; }
OperationLabel::~OperationLabel() { label_of_thread = before_; }
int OperationLabel::current() { return label_of_thread; }

// Rank 0's count: processes that joined later have made fewer models.
int agree_on_label(ProcessGroup& group) {
  const at::Tensor label = at::full({1}, ++labels, at::kInt);
  if (group.size() > 1) group.broadcast(label, 0, {}).wait();
  return label.item<int>();
}

int labels_so_far() { return labels; }

}  // namespace lockstep::detail
