// Open MPI and MPICH: this file is compiled once against each.
#include <mpi.h>

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

class MpiEngine final : public Engine {
 public:
  MpiEngine() { check(MPI_Init(nullptr, nullptr), "MPI_Init"); }
  ~MpiEngine() override { MPI_Finalize(); }

  std::string refusal(Collective, DType dtype) const override {
    if (type_of(dtype) != MPI_DATATYPE_NULL) return "";
    return "MPI has no type for " + std::string(to_string(dtype));
  }

  std::function<void()> bind(const Operation& operation) override {
    const MPI_Datatype type = type_of(operation.dtype);
    const int inputs = count_of(operation.shape.input_count);
    const int outputs = count_of(operation.shape.output_count);
    void* const in = operation.input;
    void* const out = operation.output;
    switch (operation.collective) {
      case Collective::all_reduce:
        return
            [=] { check(MPI_Allreduce(MPI_IN_PLACE, out, outputs, type, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce"); };
      case Collective::broadcast:
        return [=] { check(MPI_Bcast(out, outputs, type, kRoot, MPI_COMM_WORLD), "MPI_Bcast"); };
      case Collective::all_gather:
        return [=] { check(MPI_Allgather(in, inputs, type, out, inputs, type, MPI_COMM_WORLD), "MPI_Allgather"); };
      case Collective::reduce_scatter:
        return [=] {
          check(MPI_Reduce_scatter_block(in, out, outputs, type, MPI_SUM, MPI_COMM_WORLD), "MPI_Reduce_scatter_block");
        };
      case Collective::barrier: break;
    }
    return [] { check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); };
  }
};

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return worker_main(argc, argv, [](const WorkerConfig&) { return std::make_unique<MpiEngine>(); });
}
