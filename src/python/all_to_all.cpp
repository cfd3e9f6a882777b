#include <cstring>

#include "collectives/split_table.h"
#include "python/sequences.h"
#include "python/tensors.h"

namespace lockstep::python {
namespace {

SplitTable compare_sizes(Communicator& group, const std::vector<at::Tensor>& inputs,
                         const std::vector<at::Tensor>& outputs, Timeout timeout) {
  std::vector<std::int64_t> own;
  for (const at::Tensor& tensor : inputs) own.push_back(static_cast<std::int64_t>(tensor.nbytes()));
  for (const at::Tensor& tensor : outputs) own.push_back(static_cast<std::int64_t>(tensor.nbytes()));
  SplitTable sizes(group.size());
  group.all_gather(std::span<const std::int64_t>(own), sizes.rows(), {.timeout = timeout});
  throw_if_error(sizes.check("bytes", [&group](int rank) { return group.describe_rank(rank); }));
  return sizes;
}

void exchange_messages(Communicator& group, const std::vector<at::Tensor>& inputs,
                       const std::vector<at::Tensor>& outputs, Timeout timeout) {
  const CallOptions options{.timeout = timeout};
  std::vector<Work> works;
  for (int peer = 0; peer < group.size(); ++peer) {
    const Buffer output = buffer_of(outputs[static_cast<std::size_t>(peer)]);
    const Buffer input = buffer_of(inputs[static_cast<std::size_t>(peer)]);
    if (peer == group.rank()) {
      if (output.bytes() > 0) std::memcpy(output.data, input.data, output.bytes());
      continue;
    }
    if (output.bytes() > 0) works.push_back(group.recv_async(output, peer, kAllToAllTag, options));
    if (input.bytes() > 0) works.push_back(group.send_async(input, peer, kAllToAllTag, options));
  }
  // All, also after an error: their buffers are in use until they are complete.
  std::optional<Error> first;
  for (const Work& work : works) {
    try {
      work.wait();
    } catch (const Error& error) {
      if (!first) first = error;
    }
  }
  if (first) throw *first;
}

}  // namespace

void all_to_all(Communicator& group, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                Timeout timeout) {
  const SplitTable sizes = compare_sizes(group, inputs, outputs, timeout);
  if (!sizes.all_equal()) return exchange_messages(group, inputs, outputs, timeout);
  const Flat input = flatten(inputs, true);
  const Flat output = flatten(outputs, false);
  group.all_to_all(buffer_of(input.tensor), buffer_of(output.tensor), {.timeout = timeout});
  if (!output.is_view) unflatten(output.tensor, outputs);
}

}  // namespace lockstep::python
