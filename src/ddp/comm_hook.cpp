#include "lockstep/ddp/comm_hook.h"

#include <string>
#include <utility>

namespace lockstep {

namespace {

class FunctionHook final : public CommHook {
 public:
  FunctionHook(std::string name, std::function<HookFuture(const GradBucket&, TensorGroup&)> function)
      : name_(std::move(name)), function_(std::move(function)) {}
  const char* name() const override { return name_.c_str(); }
  HookFuture run(const GradBucket& bucket, TensorGroup& group) override { return function_(bucket, group); }

 private:
  const std::string name_;
  const std::function<HookFuture(const GradBucket&, TensorGroup&)> function_;
};

}  // namespace

std::shared_ptr<CommHook> make_comm_hook(std::string name,
                                         std::function<HookFuture(const GradBucket&, TensorGroup&)> function) {
  return std::make_shared<FunctionHook>(std::move(name), std::move(function));
}

}  // namespace lockstep
