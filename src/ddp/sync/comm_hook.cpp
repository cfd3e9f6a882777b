#include "lockstep/ddp/comm_hook.h"

#include <string>
#include <utility>

namespace lockstep {

namespace {

class FunctionHook final : public CommHook {
 public:
  FunctionHook(std::string name, std::function<HookFuture(const GradBucket&, ProcessGroup&)> function)
      : name_(std::move(name)), function_(std::move(function)) {}
  const char* name() const override { return name_.c_str(); }
  HookFuture run(const GradBucket& bucket, ProcessGroup& group) override { return function_(bucket, group); }

 private:
  const std::string name_;
  const std::function<HookFuture(const GradBucket&, ProcessGroup&)> function_;
};

}  // namespace

std::shared_ptr<CommHook> make_comm_hook(std::string name,
                                         std::function<HookFuture(const GradBucket&, ProcessGroup&)> function) {
  return std::make_shared<FunctionHook>(std::move(name), std::move(function));
}

}  // namespace lockstep
