// Open MPI and MPICH: this file is compiled once against each.
#include <mpi.h>
#include <sched.h>

#include <climits>

#include "bench/worker/channel.h"
#include "bench/worker/worker.h"

namespace lockstep::bench {
namespace {

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::i8: return MPI_INT8_T;
    case DType::u8: return MPI_UINT8_T;
    case DType::i32: return MPI_INT32_T;
    case DType::i64: return MPI_INT64_T;
    case DType::f16:
    case DType::bf16: break;
  }
  return MPI_DATATYPE_NULL;
}

int count_of(std::size_t elements) {
  if (elements > INT_MAX) throw BenchError("MPI takes at most 2^31 - 1 elements");
  return static_cast<int>(elements);
}

void check(int code, const char* call) {
  if (code != MPI_SUCCESS) throw BenchError(std::string(call) + " failed with code " + std::to_string(code));
}

// Debian's MPICH (ch4:ucx) spins while it waits, and none of its settings makes it yield: with more
// ranks than cores, each wait then costs a time slice. In that case its ranks start the
// non-blocking form and yield between tests, as an MPI program that shares cores would do.
#ifdef MPICH_VERSION
constexpr bool kYieldsByItself = false;
#else
constexpr bool kYieldsByItself = true;  // mpirun configures it to
#endif

class MpiEngine final : public Engine {
 public:
  explicit MpiEngine(const WorkerConfig& config) : test_and_yield_(config.cores.empty() && !kYieldsByItself) {
    check(MPI_Init(nullptr, nullptr), "MPI_Init");
  }
  ~MpiEngine() override { MPI_Finalize(); }

  std::string refusal(Collective, DType dtype) const override {
    if (type_of(dtype) != MPI_DATATYPE_NULL) return "";
    return "MPI has no type for " + std::string(to_string(dtype));
  }

  std::function<void()> bind(const Operation& operation) override {
    const MPI_Comm world = MPI_COMM_WORLD;
    const MPI_Datatype type = type_of(operation.dtype);
    const int inputs = count_of(operation.shape.input_count);
    const int outputs = count_of(operation.shape.output_count);
    void* const in = operation.input;
    void* const out = operation.output;
    switch (operation.collective) {
      case Collective::all_reduce:
        return either(
            "MPI_Allreduce", [=] { return MPI_Allreduce(MPI_IN_PLACE, out, outputs, type, MPI_SUM, world); },
            [=](MPI_Request* r) { return MPI_Iallreduce(MPI_IN_PLACE, out, outputs, type, MPI_SUM, world, r); });
      case Collective::broadcast:
        return either(
            "MPI_Bcast", [=] { return MPI_Bcast(out, outputs, type, kRoot, world); },
            [=](MPI_Request* r) { return MPI_Ibcast(out, outputs, type, kRoot, world, r); });
      case Collective::all_gather:
        return either(
            "MPI_Allgather", [=] { return MPI_Allgather(in, inputs, type, out, inputs, type, world); },
            [=](MPI_Request* r) { return MPI_Iallgather(in, inputs, type, out, inputs, type, world, r); });
      case Collective::reduce_scatter:
        return either(
            "MPI_Reduce_scatter_block",
            [=] { return MPI_Reduce_scatter_block(in, out, outputs, type, MPI_SUM, world); },
            [=](MPI_Request* r) { return MPI_Ireduce_scatter_block(in, out, outputs, type, MPI_SUM, world, r); });
      case Collective::barrier: break;
    }
    return either(
        "MPI_Barrier", [] { return MPI_Barrier(MPI_COMM_WORLD); },
        [](MPI_Request* r) { return MPI_Ibarrier(MPI_COMM_WORLD, r); });
  }

 private:
  template <typename Blocking, typename Starting>
  std::function<void()> either(const char* name, Blocking blocking, Starting starting) const {
    if (!test_and_yield_) return [=] { check(blocking(), name); };
    return [=] {
      MPI_Request request;
      check(starting(&request), name);
      for (int done = 0; check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), name), done == 0;) ::sched_yield();
    };
  }

  bool test_and_yield_;
};

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return worker_main(argc, argv, [](const WorkerConfig& config) { return std::make_unique<MpiEngine>(config); });
}
