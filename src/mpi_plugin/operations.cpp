#include "mpi_plugin/operations.h"

#include <memory>

#include "mpi_plugin/elements.h"

namespace lockstep::mpi_plugin {
namespace {

using Comm = lockstep_mpi_comm;
using Request = lockstep_mpi_request;

// Runs `start` on a fresh request, which is the caller's if it succeeds.
template <typename Start>
int begin(Request** request, Start start) {
  auto fresh = std::make_unique<Request>();
  const int code = start(*fresh);
  if (code == MPI_SUCCESS) *request = fresh.release();
  return code;
}

int number(std::size_t count) { return static_cast<int>(count); }

int rank_in(const Comm* comm) {
  int rank = 0;
  MPI_Comm_rank(comm->handle, &rank);
  return rank;
}

int all_reduce(Comm* comm, void* data, std::size_t count, int dtype, int op, Request** request) {
  return begin(request, [=](Request& r) {
    return MPI_Iallreduce(MPI_IN_PLACE, data, number(count), type_of(dtype), op_of(dtype, op), comm->handle, &r.handle);
  });
}

int reduce(Comm* comm, void* data, std::size_t count, int dtype, int op, int root, Request** request) {
  return begin(request, [=](Request& r) {
    const bool is_root = rank_in(comm) == root;
    return MPI_Ireduce(is_root ? MPI_IN_PLACE : data, is_root ? data : nullptr, number(count), type_of(dtype),
                       op_of(dtype, op), root, comm->handle, &r.handle);
  });
}

int broadcast(Comm* comm, void* data, std::size_t count, int dtype, int root, Request** request) {
  return begin(request, [=](Request& r) {
    return MPI_Ibcast(data, number(count), type_of(dtype), root, comm->handle, &r.handle);
  });
}

int all_gather(Comm* comm, const void* input, void* output, std::size_t count, int dtype, Request** request) {
  return begin(request, [=](Request& r) {
    const MPI_Datatype type = type_of(dtype);
    return MPI_Iallgather(input, number(count), type, output, number(count), type, comm->handle, &r.handle);
  });
}

int all_gather_v(Comm* comm, const void* input, void* output, const std::size_t* counts, int dtype, Request** request) {
  return begin(request, [=](Request& r) {
    int size = 0;
    MPI_Comm_size(comm->handle, &size);
    int offset = 0;
    for (int rank = 0; rank < size; ++rank) {
      r.counts.push_back(number(counts[rank]));
      r.offsets.push_back(offset);
      offset += r.counts.back();
    }
    const MPI_Datatype type = type_of(dtype);
    return MPI_Iallgatherv(input, r.counts[static_cast<std::size_t>(rank_in(comm))], type, output, r.counts.data(),
                           r.offsets.data(), type, comm->handle, &r.handle);
  });
}

int reduce_scatter(Comm* comm, const void* input, void* output, std::size_t count, int dtype, int op,
                   Request** request) {
  return begin(request, [=](Request& r) {
    return MPI_Ireduce_scatter_block(input, output, number(count), type_of(dtype), op_of(dtype, op), comm->handle,
                                     &r.handle);
  });
}

int gather(Comm* comm, const void* input, void* output, std::size_t count, int dtype, int root, Request** request) {
  return begin(request, [=](Request& r) {
    const MPI_Datatype type = type_of(dtype);
    return MPI_Igather(input, number(count), type, output, number(count), type, root, comm->handle, &r.handle);
  });
}

int scatter(Comm* comm, const void* input, void* output, std::size_t count, int dtype, int root, Request** request) {
  return begin(request, [=](Request& r) {
    const MPI_Datatype type = type_of(dtype);
    return MPI_Iscatter(input, number(count), type, output, number(count), type, root, comm->handle, &r.handle);
  });
}

int all_to_all(Comm* comm, const void* input, void* output, std::size_t count, int dtype, Request** request) {
  return begin(request, [=](Request& r) {
    const MPI_Datatype type = type_of(dtype);
    return MPI_Ialltoall(input, number(count), type, output, number(count), type, comm->handle, &r.handle);
  });
}

int barrier(Comm* comm, Request** request) {
  return begin(request, [=](Request& r) { return MPI_Ibarrier(comm->handle, &r.handle); });
}

int send(Comm* comm, const void* data, std::size_t count, int dtype, int destination, int tag, Request** request) {
  return begin(request, [=](Request& r) {
    return MPI_Isend(data, number(count), type_of(dtype), destination, tag, comm->handle, &r.handle);
  });
}

int recv(Comm* comm, void* data, std::size_t count, int dtype, int source, int tag, Request** request) {
  return begin(request, [=](Request& r) {
    r.received_type = type_of(dtype);
    return MPI_Irecv(data, number(count), r.received_type, source, tag, comm->handle, &r.handle);
  });
}

int test(Request* request, int* done, std::size_t* received) {
  MPI_Status status;
  int code = MPI_Test(&request->handle, done, &status);
  if (code == MPI_SUCCESS && *done == 0) return code;
  *done = 1;
  const std::unique_ptr<Request> finished(request);
  if (code == MPI_SUCCESS && request->new_comm != nullptr) {
    code = MPI_Comm_set_errhandler(request->new_comm->handle, MPI_ERRORS_RETURN);
  }
  int count = 0;
  if (code == MPI_SUCCESS && request->received_type != MPI_DATATYPE_NULL) {
    code = MPI_Get_count(&status, request->received_type, &count);
  }
  *received = count > 0 ? static_cast<std::size_t>(count) : 0;
  return code;
}

}  // namespace

void add_operations(lockstep_mpi_plugin* table) {
  table->all_reduce = all_reduce;
  table->reduce = reduce;
  table->broadcast = broadcast;
  table->all_gather = all_gather;
  table->all_gather_v = all_gather_v;
  table->reduce_scatter = reduce_scatter;
  table->gather = gather;
  table->scatter = scatter;
  table->all_to_all = all_to_all;
  table->barrier = barrier;
  table->send = send;
  table->recv = recv;
  table->test = test;
}

}  // namespace lockstep::mpi_plugin
