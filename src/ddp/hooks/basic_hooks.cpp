// The hooks that do not compress: all-reduce, no communication, and post-local SGD, which changes from one to the
// other.
#include <fmt/format.h>

#include "lockstep/ddp/hooks.h"

namespace lockstep {

namespace {

class PostLocalSgdHook final : public CommHook {
 public:
  explicit PostLocalSgdHook(const PostLocalSgdOptions& options) : options_(options) {
    if (options.subgroup) options.subgroup->require_member();
  }
  const char* name() const override { return "post_local_sgd"; }

  HookFuture run(const GradBucket& bucket, ProcessGroup& group) override {
    const bool all_ranks = step_ < options_.start_step;
    if (bucket.is_last()) ++step_;
    if (all_ranks) return group.all_reduce(bucket.buffer(), {.op = ReduceOp::avg});
    if (options_.subgroup) return options_.subgroup->all_reduce(bucket.buffer(), {.op = ReduceOp::avg});
    return {};
  }

 private:
  const PostLocalSgdOptions options_;
  std::int64_t step_ = 0;
};

}  // namespace

std::shared_ptr<CommHook> all_reduce_hook() {
  return make_comm_hook("all_reduce", [](const GradBucket& bucket, ProcessGroup& group) -> HookFuture {
    return group.all_reduce(bucket.buffer(), {.op = ReduceOp::avg});
  });
}

std::shared_ptr<CommHook> noop_hook() {
  return make_comm_hook("noop", [](const GradBucket&, ProcessGroup&) { return HookFuture(); });
}

std::shared_ptr<CommHook> post_local_sgd_hook(const PostLocalSgdOptions& options) {
  if (options.start_step < 0) {
    throw Error({StatusCode::invalid_argument,
                 fmt::format("post_local_sgd_hook: start_step is {} and must be 0 or more", options.start_step)});
  }
  return std::make_shared<PostLocalSgdHook>(options);
}

}  // namespace lockstep
