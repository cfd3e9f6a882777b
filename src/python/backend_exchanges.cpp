// The operations of TorchBackend that are sequences (python/sequences.h), and messages.
#include <fmt/format.h>

#include <numeric>

#include "python/backend.h"
#include "python/sequences.h"
#include "python/tensors.h"

namespace lockstep::python {
namespace {

using ::c10d::OpType;

void check_tag(const std::string& operation, int tag) {
  if (tag < 0) refuse(operation, fmt::format("the tag is {}; it must not be negative", tag));
}

// The blocks of a contiguous tensor: `splits` rows each, or equal ones if there are none.
std::vector<at::Tensor> blocks_of(const at::Tensor& tensor, const std::vector<std::int64_t>& splits, int ranks) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  std::vector<std::int64_t> sizes = splits;
  if (sizes.empty()) {
    if (rows % ranks != 0) {
      refuse("all_to_all_single",
             fmt::format("dimension 0 has size {}, which cannot be divided equally among {} ranks; pass "
                         "split sizes",
                         rows, ranks));
    }
    sizes.assign(static_cast<std::size_t>(ranks), rows / ranks);
  }
  const bool negative = std::any_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size < 0; });
  if (static_cast<int>(sizes.size()) != ranks || negative ||
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) != rows) {
    refuse("all_to_all_single",
           fmt::format("one split size for each of the {} ranks is needed, and they must add up to {}, "
                       "the size of dimension 0",
                       ranks, rows));
  }
  const at::Tensor flat = tensor.detach().view({-1});
  const std::int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
  std::vector<at::Tensor> blocks;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    blocks.push_back(flat.narrow(0, start, size * row));
    start += size * row;
  }
  return blocks;
}

std::vector<at::Tensor> contiguous(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.detach().contiguous());
  return result;
}

// Copies those that contiguous() had to copy back.
void copy_back(const std::vector<at::Tensor>& copies, const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    if (!tensors[index].is_contiguous()) tensors[index].detach().copy_(copies[index]);
  }
}

}  // namespace

TorchBackend::WorkPointer TorchBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                 const ::c10d::AllToAllOptions& options) {
  if (inputs.empty()) refuse("all_to_all", "the list of inputs is empty");
  check_list("all_to_all", inputs, inputs.front());
  check_list("all_to_all", outputs, inputs.front());
  Task task = begin(OpType::ALLTOALL, "all_to_all", inputs, {outputs});
  const Tensors results = contiguous(outputs);
  task.sequence = [from = contiguous(inputs), results, timeout = timeout_of(options.timeout)](Communicator& group) {
    all_to_all(group, from, results, timeout);
  };
  task.finally = {[results, outputs] { copy_back(results, outputs); }};
  return issue(std::move(task));
}

TorchBackend::WorkPointer TorchBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                      std::vector<std::int64_t>& output_splits,
                                                      std::vector<std::int64_t>& input_splits,
                                                      const ::c10d::AllToAllOptions& options) {
  check_dense("all_to_all_single", input);
  check_dense("all_to_all_single", output);
  if (input.scalar_type() != output.scalar_type()) refuse("all_to_all_single", "input and output have different types");
  Task task = begin(OpType::ALLTOALL_BASE, "all_to_all", {input}, {{output}});
  const Tensors result = contiguous({output});
  task.sequence = [from = blocks_of(input.contiguous(), input_splits, getSize()),
                   to = blocks_of(result.front(), output_splits, getSize()), timeout = timeout_of(options.timeout)](
                      Communicator& group) { all_to_all(group, from, to, timeout); };
  task.finally = {[result, output] { copy_back(result, {output}); }};
  return issue(std::move(task));
}

TorchBackend::WorkPointer TorchBackend::allreduce_sparse(Tensors& tensors, const ::c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only("all_reduce", tensors);
  if (!tensor.device().is_cpu()) refuse("all_reduce", "backend \"lockstep\" takes CPU tensors");
  const ::c10d::ReduceOp::RedOpType op = options.reduceOp;
  if (op != ::c10d::ReduceOp::SUM) refuse("all_reduce", "sparse tensors can only be summed");
  Task task = begin(OpType::ALLREDUCE, "all_reduce", {}, {tensors});
  task.sequence = [tensor, timeout = timeout_of(options.timeout)](Communicator& group) {
    all_reduce_sparse(group, tensor, timeout);
  };
  return issue(std::move(task));
}

TorchBackend::WorkPointer TorchBackend::send(Tensors& tensors, int destination, int tag) {
  const at::Tensor& tensor = only("send", tensors);
  check_dense("send", tensor);
  check_tag("send", tag);
  Task task = begin(OpType::SEND, "send", tensors, {});
  task.tensors = contiguous(tensors);
  task.operations = {Operation::send(buffer_of(task.tensors.front()), destination, tag, {.timeout = timeout_.load()})};
  return issue_message(std::move(task));
}

TorchBackend::WorkPointer TorchBackend::recv(Tensors& tensors, int source, int tag) {
  check_dense("recv", only("recv", tensors));
  check_tag("recv", tag);
  Task task = begin(OpType::RECV, "recv", tensors, {tensors});
  task.tensors = contiguous(tensors);
  task.finally = {[copies = task.tensors, tensors] { copy_back(copies, tensors); }};
  task.work->set_source(source);
  task.operations = {Operation::recv(buffer_of(task.tensors.front()), source, tag, {.timeout = timeout_.load()})};
  return issue_message(std::move(task));
}

TorchBackend::WorkPointer TorchBackend::recvAnysource(Tensors& tensors, int tag) {
  check_dense("recv", only("recv", tensors));
  check_tag("recv", tag);
  Task task = begin(OpType::RECVANYSOURCE, "recvAnySource", tensors, {tensors});
  task.tensors = contiguous(tensors);
  const auto source = std::make_shared<int>(-1);
  task.operations = {
      Operation::recv_any(buffer_of(task.tensors.front()), source.get(), tag, {.timeout = timeout_.load()})};
  task.finally = {[copies = task.tensors, tensors, source, work = task.work] {
    copy_back(copies, tensors);
    work->set_source(*source);
  }};
  return issue_message(std::move(task));
}

}  // namespace lockstep::python
