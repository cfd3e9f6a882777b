// A sparse tensor is a list of indices and a list of values. Every rank gets all lists, one after the other in rank
// order, and adds up values of equal indices: the same bits on every rank.
#include <fmt/format.h>

#include <numeric>

#include "python/sequences.h"
#include "python/tensors.h"

namespace lockstep::python {
namespace {

// Type, dimensions and number of elements of one rank's tensor.
std::vector<std::int64_t> describe(const at::Tensor& tensor) {
  std::vector<std::int64_t> fields{static_cast<std::int64_t>(tensor.scalar_type()), tensor.sparse_dim(),
                                   tensor.dense_dim(), tensor._nnz()};
  constexpr std::size_t kMaxDimensions = 60;
  if (tensor.dim() > static_cast<std::int64_t>(kMaxDimensions))
    refuse("all_reduce", "the tensor has too many dimensions");
  fields.insert(fields.end(), tensor.sizes().begin(), tensor.sizes().end());
  fields.resize(4 + kMaxDimensions, -1);
  return fields;
}

// All ranks' rows: rows of `own` one after the other.
at::Tensor gather_rows(Communicator& group, const at::Tensor& own, const std::vector<std::int64_t>& rows,
                       Timeout timeout) {
  const at::Tensor mine = own.contiguous();
  std::vector<std::int64_t> shape = own.sizes().vec();
  shape[0] = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  at::Tensor all = at::empty(shape, own.options());
  const Buffer input = buffer_of(mine);
  const Buffer output = buffer_of(all);
  const std::size_t row = shape[0] == 0 ? 0 : output.count / static_cast<std::size_t>(shape[0]);
  std::vector<std::size_t> counts;
  for (const std::int64_t count : rows) counts.push_back(static_cast<std::size_t>(count) * row);
  group.all_gather_v(input, output, counts, {.timeout = timeout});
  return all;
}

}  // namespace

void all_reduce_sparse(Communicator& group, at::Tensor tensor, Timeout timeout) {
  const at::NoGradGuard no_grad;
  const at::Tensor own = tensor.detach().coalesce();
  const std::vector<std::int64_t> mine = describe(own);
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(std::span<const std::int64_t>(mine), std::span(all), {.timeout = timeout});
  std::vector<std::int64_t> elements;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto theirs = std::span(all).subspan(static_cast<std::size_t>(rank) * mine.size(), mine.size());
    elements.push_back(theirs[3]);
    std::vector<std::int64_t> same(theirs.begin(), theirs.end());
    same[3] = mine[3];
    if (same != mine) {
      throw Error(Status(StatusCode::invalid_argument,
                         fmt::format("all_reduce: the sparse tensor of {} has another type or shape than that of {}",
                                     group.describe_rank(rank), group.describe_rank(group.rank()))));
    }
  }
  const at::Tensor indices = gather_rows(group, own.indices().t(), elements, timeout).t();
  const at::Tensor values = gather_rows(group, own.values(), elements, timeout);
  // Not through detach(), which would copy the lists into a tensor of its own.
  tensor.copy_(at::sparse_coo_tensor(indices, values, own.sizes()).coalesce());
}

}  // namespace lockstep::python
