#include "communicator/collective_request.h"

#include <numeric>

#include "communicator/call_checks.h"

namespace lockstep {
namespace {

const std::byte* bytes_of(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

// One function for each kind of operation. It checks the arguments and sets what the kind needs.
class RequestMaker {
 public:
  RequestMaker(const Operation& operation, int rank, int size)
      : call_(to_string(operation.kind)),
        operation_(operation),
        input_(operation.input),
        output_(operation.output),
        rank_(static_cast<std::size_t>(rank)),
        size_(static_cast<std::size_t>(size)),
        is_root_(rank == operation.peer) {}

  IssuedCollective make() {
    if (is_collective(operation_.kind)) {
      issued_.call.descriptor = descriptor_of(operation_, static_cast<int>(size_));
    }
    switch (operation_.kind) {
      case OperationKind::barrier: break;
      case OperationKind::all_reduce: all_reduce(); break;
      case OperationKind::reduce: reduce(); break;
      case OperationKind::broadcast: broadcast(); break;
      case OperationKind::all_gather: all_gather(); break;
      case OperationKind::all_gather_v: all_gather_v(); break;
      case OperationKind::reduce_scatter: reduce_scatter(); break;
      case OperationKind::gather: gather(); break;
      case OperationKind::scatter: scatter(); break;
      case OperationKind::all_to_all: all_to_all(); break;
      case OperationKind::send:
      case OperationKind::recv:
        throw Error(Status(StatusCode::internal, std::string(call_) + " is a message, not a collective"));
    }
    return std::move(issued_);
  }

 private:
  // Ranks that do not use a buffer pass null.
  void use(const void* input, void* output) {
    issued_.call.input = bytes_of(input);
    issued_.call.output = bytes_of(output);
  }
  void check_op() { check_reduce_op(call_, input_.dtype, operation_.op); }
  void check_root() { check_rank(call_, "root", operation_.peer, static_cast<int>(size_)); }
  void check_both() const {
    check_data(call_, "input", input_);
    check_data(call_, "output", output_);
    check_same_type(call_, input_, output_);
  }

  void all_reduce() {
    check_both();
    check_count(call_, "output", output_.count, input_.count, "as many as in the input");
    check_overlap(call_, input_, output_, output_.data);
    check_op();
    use(input_.data, output_.data);
  }

  void reduce() {
    check_root();
    check_data(call_, "input", input_);
    check_op();
    if (is_root_) {
      check_both();
      check_count(call_, "output", output_.count, input_.count, "as many as in the input");
      check_overlap(call_, input_, output_, output_.data);
    }
    use(input_.data, is_root_ ? output_.data : nullptr);
  }

  void broadcast() {
    check_root();
    check_data(call_, "buffer", output_);
    use(output_.data, output_.data);
  }

  void all_gather() {
    check_both();
    check_count(call_, "output", output_.count, size_ * input_.count, "size of the group times the input's");
    check_overlap(call_, input_, output_, bytes_of(output_.data) + rank_ * input_.bytes());
    use(input_.data, output_.data);
  }

  void all_gather_v() {
    const auto counts = operation_.counts;
    check_count(call_, "list of counts", counts.size(), size_, "one for each rank");
    check_both();
    check_count(call_, "input", input_.count, counts[rank_], "this rank's entry in the list of counts");
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    check_count(call_, "output", output_.count, total, "the sum of the counts");
    const auto before = counts.first(rank_);
    const std::size_t offset = std::accumulate(before.begin(), before.end(), std::size_t{0});
    check_overlap(call_, input_, output_, bytes_of(output_.data) + offset * element_size(input_.dtype));
    issued_.counts.assign(counts.begin(), counts.end());
    use(input_.data, output_.data);
  }

  void reduce_scatter() {
    check_both();
    check_op();
    check_count(call_, "input", input_.count, size_ * output_.count, "size of the group times the output's");
    if (output_.data != bytes_of(input_.data) + rank_ * output_.bytes()) {
      check_overlap(call_, input_, output_, nullptr);
    }
    use(input_.data, output_.data);
  }

  void gather() {
    check_root();
    check_data(call_, "input", input_);
    if (is_root_) {
      check_both();
      check_count(call_, "output", output_.count, size_ * input_.count, "size of the group times the input's");
      check_overlap(call_, input_, output_, bytes_of(output_.data) + rank_ * input_.bytes());
    }
    use(input_.data, is_root_ ? output_.data : nullptr);
  }

  void scatter() {
    check_root();
    check_data(call_, "output", output_);
    if (is_root_) {
      check_both();
      check_count(call_, "input", input_.count, size_ * output_.count, "size of the group times the output's");
      if (output_.data != bytes_of(input_.data) + rank_ * output_.bytes()) {
        check_overlap(call_, input_, output_, nullptr);
      }
    }
    use(is_root_ ? input_.data : nullptr, output_.data);
  }

  void all_to_all() {
    check_both();
    check_count(call_, "output", output_.count, input_.count, "as many as in the input");
    check_count(call_, "input", input_.count, input_.count / size_ * size_, "a multiple of the size of the group");
    check_overlap(call_, input_, output_, output_.data);
    use(input_.data, output_.data);
  }

  const std::string_view call_;
  const Operation& operation_;
  const ConstBuffer input_;
  const Buffer output_;
  const std::size_t rank_;
  const std::size_t size_;
  const bool is_root_;
  IssuedCollective issued_ = {};
};

}  // namespace

IssuedCollective make_collective_request(const Operation& operation, int rank, int size,
                                         std::chrono::milliseconds timeout) {
  IssuedCollective issued = RequestMaker(operation, rank, size).make();
  issued.timeout = operation.timeout.value_or(timeout);
  return issued;
}

}  // namespace lockstep
