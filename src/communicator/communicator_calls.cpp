// The operations of a Communicator: checks, then the lanes.
#include <xxhash.h>

#include <numeric>
#include <utility>

#include "communicator/call_checks.h"
#include "communicator/communicator_impl.h"

namespace lockstep {
namespace {

const std::byte* bytes_of(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

std::size_t times(int size, std::size_t count) { return static_cast<std::size_t>(size) * count; }

using Timeout = std::optional<std::chrono::milliseconds>;

}  // namespace

std::chrono::milliseconds Communicator::Impl::timeout_or_default(Timeout timeout) const {
  return timeout.value_or(core->options().timeout);
}

IssuedCollective Communicator::Impl::issue(CollectiveKind kind, DType dtype, std::size_t count, const void* input,
                                           void* output, Timeout timeout) const {
  IssuedCollective issued;
  issued.call.descriptor.kind = kind;
  issued.call.descriptor.dtype = dtype;
  issued.call.descriptor.count = count;
  issued.call.input = bytes_of(input);
  issued.call.output = bytes_of(output);
  issued.timeout = timeout_or_default(timeout);
  return issued;
}

namespace {

// Each of these checks the arguments of one operation and describes it; run and submit do the rest.

IssuedCollective make_all_reduce(const Communicator::Impl& impl, ConstBuffer input, Buffer output,
                                 const ReduceOptions& options) {
  constexpr auto kCall = "all_reduce";
  check_data(kCall, "input", input);
  check_data(kCall, "output", output);
  check_same_type(kCall, input, output);
  check_count(kCall, "output", output.count, input.count, "as many as in the input");
  check_reduce_op(kCall, input.dtype, options.op);
  check_overlap(kCall, input, output, output.data);
  auto issued =
      impl.issue(CollectiveKind::all_reduce, input.dtype, input.count, input.data, output.data, options.timeout);
  issued.call.descriptor.op = options.op;
  return issued;
}

IssuedCollective make_reduce(const Communicator::Impl& impl, ConstBuffer input, Buffer output, int root,
                             const ReduceOptions& options) {
  constexpr auto kCall = "reduce";
  check_rank(kCall, "root", root, impl.size());
  check_data(kCall, "input", input);
  check_reduce_op(kCall, input.dtype, options.op);
  if (impl.rank() == root) {
    check_data(kCall, "output", output);
    check_same_type(kCall, input, output);
    check_count(kCall, "output", output.count, input.count, "as many as in the input");
    check_overlap(kCall, input, output, output.data);
  }
  auto issued = impl.issue(CollectiveKind::reduce, input.dtype, input.count, input.data,
                           impl.rank() == root ? output.data : nullptr, options.timeout);
  issued.call.descriptor.op = options.op;
  issued.call.descriptor.root = root;
  return issued;
}

IssuedCollective make_broadcast(const Communicator::Impl& impl, Buffer data, int root, const CallOptions& options) {
  check_rank("broadcast", "root", root, impl.size());
  check_data("broadcast", "buffer", data);
  auto issued = impl.issue(CollectiveKind::broadcast, data.dtype, data.count, data.data, data.data, options.timeout);
  issued.call.descriptor.root = root;
  return issued;
}

IssuedCollective make_all_gather(const Communicator::Impl& impl, ConstBuffer input, Buffer output,
                                 const CallOptions& options) {
  constexpr auto kCall = "all_gather";
  check_data(kCall, "input", input);
  check_data(kCall, "output", output);
  check_same_type(kCall, input, output);
  check_count(kCall, "output", output.count, times(impl.size(), input.count), "size of the group times the input's");
  check_overlap(kCall, input, output, bytes_of(output.data) + times(impl.rank(), input.bytes()));
  return impl.issue(CollectiveKind::all_gather, input.dtype, input.count, input.data, output.data, options.timeout);
}

IssuedCollective make_all_gather_v(const Communicator::Impl& impl, ConstBuffer input, Buffer output,
                                   std::span<const std::size_t> counts, const CallOptions& options) {
  constexpr auto kCall = "all_gather_v";
  check_count(kCall, "list of counts", counts.size(), times(impl.size(), 1), "one for each rank");
  check_data(kCall, "input", input);
  check_data(kCall, "output", output);
  check_same_type(kCall, input, output);
  check_count(kCall, "input", input.count, counts[static_cast<std::size_t>(impl.rank())], "as the list of counts says");
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  check_count(kCall, "output", output.count, total, "the sum of the counts");
  const auto before = counts.first(static_cast<std::size_t>(impl.rank()));
  const std::size_t offset = std::accumulate(before.begin(), before.end(), std::size_t{0});
  check_overlap(kCall, input, output, bytes_of(output.data) + offset * element_size(input.dtype));
  auto issued = impl.issue(CollectiveKind::all_gather_v, input.dtype, total, input.data, output.data, options.timeout);
  issued.counts.assign(counts.begin(), counts.end());
  issued.call.descriptor.digest = XXH3_64bits(counts.data(), counts.size_bytes()) & 0xffffffffU;
  return issued;
}

IssuedCollective make_reduce_scatter(const Communicator::Impl& impl, ConstBuffer input, Buffer output,
                                     const ReduceOptions& options) {
  constexpr auto kCall = "reduce_scatter";
  check_data(kCall, "input", input);
  check_data(kCall, "output", output);
  check_same_type(kCall, input, output);
  check_reduce_op(kCall, input.dtype, options.op);
  check_count(kCall, "input", input.count, times(impl.size(), output.count), "size of the group times the output's");
  if (output.data != bytes_of(input.data) + times(impl.rank(), output.bytes())) {
    check_overlap(kCall, input, output, nullptr);
  }
  auto issued =
      impl.issue(CollectiveKind::reduce_scatter, input.dtype, output.count, input.data, output.data, options.timeout);
  issued.call.descriptor.op = options.op;
  return issued;
}

IssuedCollective make_gather(const Communicator::Impl& impl, ConstBuffer input, Buffer output, int root,
                             const CallOptions& options) {
  constexpr auto kCall = "gather";
  check_rank(kCall, "root", root, impl.size());
  check_data(kCall, "input", input);
  const bool is_root = impl.rank() == root;
  if (is_root) {
    check_data(kCall, "output", output);
    check_same_type(kCall, input, output);
    check_count(kCall, "output", output.count, times(impl.size(), input.count), "size of the group times the input's");
    check_overlap(kCall, input, output, bytes_of(output.data) + times(root, input.bytes()));
  }
  auto issued = impl.issue(CollectiveKind::gather, input.dtype, input.count, input.data,
                           is_root ? output.data : nullptr, options.timeout);
  issued.call.descriptor.root = root;
  return issued;
}

IssuedCollective make_scatter(const Communicator::Impl& impl, ConstBuffer input, Buffer output, int root,
                              const CallOptions& options) {
  constexpr auto kCall = "scatter";
  check_rank(kCall, "root", root, impl.size());
  check_data(kCall, "output", output);
  const bool is_root = impl.rank() == root;
  if (is_root) {
    check_data(kCall, "input", input);
    check_same_type(kCall, input, output);
    check_count(kCall, "input", input.count, times(impl.size(), output.count), "size of the group times the output's");
    if (output.data != bytes_of(input.data) + times(root, output.bytes())) check_overlap(kCall, input, output, nullptr);
  }
  auto issued = impl.issue(CollectiveKind::scatter, output.dtype, output.count, is_root ? input.data : nullptr,
                           output.data, options.timeout);
  issued.call.descriptor.root = root;
  return issued;
}

IssuedCollective make_all_to_all(const Communicator::Impl& impl, ConstBuffer input, Buffer output,
                                 const CallOptions& options) {
  constexpr auto kCall = "all_to_all";
  check_data(kCall, "input", input);
  check_data(kCall, "output", output);
  check_same_type(kCall, input, output);
  check_count(kCall, "output", output.count, input.count, "as many as in the input");
  const auto ranks = static_cast<std::size_t>(impl.size());
  check_count(kCall, "input", input.count, input.count / ranks * ranks, "a multiple of the size of the group");
  check_overlap(kCall, input, output, output.data);
  return impl.issue(CollectiveKind::all_to_all, input.dtype, input.count / ranks, input.data, output.data,
                    options.timeout);
}

}  // namespace

void Communicator::all_reduce(Buffer data, const ReduceOptions& options) { all_reduce(data, data, options); }
Work Communicator::all_reduce_async(Buffer data, const ReduceOptions& options) {
  return all_reduce_async(data, data, options);
}
void Communicator::all_reduce(ConstBuffer input, Buffer output, const ReduceOptions& options) {
  throw_if_error(impl_->collectives.run(make_all_reduce(*impl_, input, output, options)));
}
Work Communicator::all_reduce_async(ConstBuffer input, Buffer output, const ReduceOptions& options) {
  return impl_->collectives.submit(make_all_reduce(*impl_, input, output, options));
}

void Communicator::reduce(ConstBuffer input, Buffer output, int root, const ReduceOptions& options) {
  throw_if_error(impl_->collectives.run(make_reduce(*impl_, input, output, root, options)));
}
Work Communicator::reduce_async(ConstBuffer input, Buffer output, int root, const ReduceOptions& options) {
  return impl_->collectives.submit(make_reduce(*impl_, input, output, root, options));
}

void Communicator::broadcast(Buffer data, int root, const CallOptions& options) {
  throw_if_error(impl_->collectives.run(make_broadcast(*impl_, data, root, options)));
}
Work Communicator::broadcast_async(Buffer data, int root, const CallOptions& options) {
  return impl_->collectives.submit(make_broadcast(*impl_, data, root, options));
}

void Communicator::all_gather(ConstBuffer input, Buffer output, const CallOptions& options) {
  throw_if_error(impl_->collectives.run(make_all_gather(*impl_, input, output, options)));
}
Work Communicator::all_gather_async(ConstBuffer input, Buffer output, const CallOptions& options) {
  return impl_->collectives.submit(make_all_gather(*impl_, input, output, options));
}

void Communicator::all_gather_v(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                                const CallOptions& options) {
  throw_if_error(impl_->collectives.run(make_all_gather_v(*impl_, input, output, counts, options)));
}
Work Communicator::all_gather_v_async(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                                      const CallOptions& options) {
  return impl_->collectives.submit(make_all_gather_v(*impl_, input, output, counts, options));
}

void Communicator::reduce_scatter(ConstBuffer input, Buffer output, const ReduceOptions& options) {
  throw_if_error(impl_->collectives.run(make_reduce_scatter(*impl_, input, output, options)));
}
Work Communicator::reduce_scatter_async(ConstBuffer input, Buffer output, const ReduceOptions& options) {
  return impl_->collectives.submit(make_reduce_scatter(*impl_, input, output, options));
}

void Communicator::gather(ConstBuffer input, Buffer output, int root, const CallOptions& options) {
  throw_if_error(impl_->collectives.run(make_gather(*impl_, input, output, root, options)));
}
Work Communicator::gather_async(ConstBuffer input, Buffer output, int root, const CallOptions& options) {
  return impl_->collectives.submit(make_gather(*impl_, input, output, root, options));
}

void Communicator::scatter(ConstBuffer input, Buffer output, int root, const CallOptions& options) {
  throw_if_error(impl_->collectives.run(make_scatter(*impl_, input, output, root, options)));
}
Work Communicator::scatter_async(ConstBuffer input, Buffer output, int root, const CallOptions& options) {
  return impl_->collectives.submit(make_scatter(*impl_, input, output, root, options));
}

void Communicator::all_to_all(ConstBuffer input, Buffer output, const CallOptions& options) {
  throw_if_error(impl_->collectives.run(make_all_to_all(*impl_, input, output, options)));
}
Work Communicator::all_to_all_async(ConstBuffer input, Buffer output, const CallOptions& options) {
  return impl_->collectives.submit(make_all_to_all(*impl_, input, output, options));
}

void Communicator::barrier(const CallOptions& options) {
  throw_if_error(
      impl_->collectives.run(impl_->issue(CollectiveKind::barrier, DType::u8, 0, nullptr, nullptr, options.timeout)));
}
Work Communicator::barrier_async(const CallOptions& options) {
  return impl_->collectives.submit(
      impl_->issue(CollectiveKind::barrier, DType::u8, 0, nullptr, nullptr, options.timeout));
}

void Communicator::send(ConstBuffer data, int destination, int tag, const CallOptions& options) {
  send_async(data, destination, tag, options).wait();
}
Work Communicator::send_async(ConstBuffer data, int destination, int tag, const CallOptions& options) {
  check_rank("send", "destination", destination, size());
  check_data("send", "buffer", data);
  return impl_->messages.send(data, destination, tag, impl_->timeout_or_default(options.timeout));
}
void Communicator::recv(Buffer data, int source, int tag, const CallOptions& options) {
  recv_async(data, source, tag, options).wait();
}
Work Communicator::recv_async(Buffer data, int source, int tag, const CallOptions& options) {
  check_rank("recv", "source", source, size());
  check_data("recv", "buffer", data);
  return impl_->messages.recv(data, source, tag, impl_->timeout_or_default(options.timeout));
}

}  // namespace lockstep
