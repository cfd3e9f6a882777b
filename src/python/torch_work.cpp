#include "python/torch_work.h"

#include <fmt/format.h>

#include "ddp/torch_compat.h"
#include "python/gil.h"

namespace lockstep::python {
namespace {

using FuturePointer = c10::intrusive_ptr<c10::ivalue::Future>;

FuturePointer make_future(std::size_t lists) {
  const c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
  return c10::make_intrusive<c10::ivalue::Future>(lists > 1 ? c10::ListType::create(tensors) : tensors);
}

}  // namespace

std::exception_ptr exception_of(const Status& status) {
  try {
    throw_status(status);
  } catch (...) {
    return std::current_exception();
  }
}

void throw_status(const Status& status) {
  if (status.code() == StatusCode::invalid_argument) throw std::invalid_argument(status.to_string());
  compat::throw_backend_error(status.to_string());
}

TorchWork::TorchWork(int rank, ::c10d::OpType type, const std::string& name, const std::vector<at::Tensor>& inputs,
                     Outputs outputs, std::shared_ptr<CompletionQueue> queue)
    : Work(rank, type, ("lockstep:" + name).c_str(), inputs),
      name_(name),
      outputs_(std::move(outputs)),
      queue_(std::move(queue)) {}

void TorchWork::complete(const Status& outcome) {
  FuturePointer future;
  {
    // A future that is asked for from now on is created complete.
    const std::lock_guard lock(mutex_);
    future = future_;
    outcome_ = outcome;
    has_outcome_ = true;
  }
  finish(outcome.ok() ? nullptr : exception_of(outcome));
  if (!future) return;
  auto self = c10::intrusive_ptr<TorchWork>::unsafe_reclaim_from_nonowning(this);
  queue_->post([self = std::move(self), future = std::move(future)] { self->settle(*future); });
}

FuturePointer TorchWork::getFuture() {
  if (has_gil()) {
    const ReleaseGil released;
    std::unique_lock lock(mutex_);
    cv_.wait(lock, [this] { return completed_; });
  }
  const std::lock_guard lock(mutex_);
  if (!future_) {
    future_ = make_future(outputs_.size());
    if (has_outcome_) settle(*future_);
  }
  return future_;
}

void TorchWork::settle(c10::ivalue::Future& future) const {
  if (!outcome_.ok()) {
    future.setError(exception_of(outcome_));
  } else if (outputs_.size() > 1) {
    future.markCompleted(outputs_);
  } else {
    future.markCompleted(outputs_.empty() ? std::vector<at::Tensor>() : outputs_.front());
  }
}

bool TorchWork::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto done = [this] { return completed_; };
  if (timeout.count() == 0) {
    cv_.wait(lock, done);
  } else if (!cv_.wait_for(lock, timeout, done)) {
    lock.unlock();
    throw_status(
        Status(StatusCode::timed_out,
               fmt::format("{} is not complete after {:.1f} s; only this wait has ended, the operation continues",
                           name_, std::chrono::duration<double>(timeout).count())));
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

void TorchWork::abort() {
  throw_status(Status(StatusCode::invalid_argument,
                      "a single operation cannot be aborted; lockstep.abort(group) ends the whole group"));
}

std::vector<at::Tensor> TorchWork::result() {
  if (outputs_.size() > 1) {
    throw_status(
        Status(StatusCode::invalid_argument, name_ + " has several lists of results; use get_future().value()"));
  }
  return outputs_.empty() ? std::vector<at::Tensor>() : outputs_.front();
}

}  // namespace lockstep::python
