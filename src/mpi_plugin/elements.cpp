#include "mpi_plugin/elements.h"

#include <array>

#include "lockstep/collectives/types.h"

namespace lockstep::mpi_plugin {
namespace {

lockstep_mpi_combine combine_elements = nullptr;
MPI_Datatype sixteen_bits = MPI_DATATYPE_NULL;

// MPI passes a user's function neither the type nor the operation that it is called for: one function for each pair.
template <DType dtype, ReduceOp op>
void combine_as(void* operand, void* accumulator, int* count, MPI_Datatype*) {
  combine_elements(static_cast<int>(dtype), static_cast<int>(op), operand, accumulator,
                   static_cast<std::size_t>(*count));
}

struct OwnOperation {
  DType dtype;
  ReduceOp op;
  MPI_User_function* function;
  MPI_Op handle = MPI_OP_NULL;
};

template <DType dtype, ReduceOp op>
OwnOperation own() {
  return {dtype, op, combine_as<dtype, op>};
}

// 16-bit floats are used here for min and max only: their sums are rounded once, which no function of two can do.
std::array own_operations = {
    own<DType::f16, ReduceOp::min>(),  own<DType::f16, ReduceOp::max>(), own<DType::bf16, ReduceOp::min>(),
    own<DType::bf16, ReduceOp::max>(), own<DType::f32, ReduceOp::min>(), own<DType::f32, ReduceOp::max>(),
    own<DType::f64, ReduceOp::min>(),  own<DType::f64, ReduceOp::max>(),
};

}  // namespace

int make_elements(lockstep_mpi_combine combine) {
  combine_elements = combine;
  if (int code = MPI_Type_contiguous(2, MPI_BYTE, &sixteen_bits)) return code;
  if (int code = MPI_Type_commit(&sixteen_bits)) return code;
  for (OwnOperation& operation : own_operations) {
    if (int code = MPI_Op_create(operation.function, /*commute=*/1, &operation.handle)) return code;
  }
  return MPI_SUCCESS;
}

int free_elements() {
  for (OwnOperation& operation : own_operations) {
    if (int code = MPI_Op_free(&operation.handle)) return code;
  }
  return MPI_Type_free(&sixteen_bits);
}

MPI_Datatype type_of(int dtype) {
  switch (static_cast<DType>(dtype)) {
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::f16:
    case DType::bf16: return sixteen_bits;
    case DType::i8: return MPI_INT8_T;
    case DType::u8: return MPI_UINT8_T;
    case DType::i32: return MPI_INT32_T;
    case DType::i64: return MPI_INT64_T;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op op_of(int dtype, int op) {
  for (const OwnOperation& operation : own_operations) {
    if (static_cast<int>(operation.dtype) == dtype && static_cast<int>(operation.op) == op) return operation.handle;
  }
  switch (static_cast<ReduceOp>(op)) {
    case ReduceOp::sum: return MPI_SUM;
    case ReduceOp::prod: return MPI_PROD;
    case ReduceOp::min: return MPI_MIN;
    case ReduceOp::max: return MPI_MAX;
    case ReduceOp::bit_and: return MPI_BAND;
    case ReduceOp::bit_or: return MPI_BOR;
    case ReduceOp::bit_xor: return MPI_BXOR;
    case ReduceOp::avg: break;
  }
  return MPI_OP_NULL;
}

}  // namespace lockstep::mpi_plugin
