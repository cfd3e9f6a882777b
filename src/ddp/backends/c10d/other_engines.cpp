// The engines that LibTorch may have besides Gloo and NCCL, if it was built with them.
#include "ddp/backends/c10d/c10d_engine.h"

// Debian's LibTorch 2.x has MPI, but does not provide the path of MPI's header.
#if defined(USE_C10D_MPI) && __has_include(<mpi.h>)
#include <torch/csrc/distributed/c10d/ProcessGroupMPI.hpp>
#define LOCKSTEP_HAS_MPI_OF_LIBTORCH 1
#endif
#ifdef USE_C10D_UCC
#include <torch/csrc/distributed/c10d/ProcessGroupUCC.hpp>
#endif
#if defined(USE_C10D_XCCL) && __has_include(<torch/csrc/distributed/c10d/ProcessGroupXCCL.hpp>)
#include <torch/csrc/distributed/c10d/ProcessGroupXCCL.hpp>
#define LOCKSTEP_HAS_XCCL 1
#endif

namespace lockstep::detail {

BackendEntry mpi_of_libtorch_backend() {
#if defined(LOCKSTEP_HAS_MPI_OF_LIBTORCH)
  return c10d_backend({"mpi",
                       [](const C10dBackendArguments&) -> c10::intrusive_ptr<C10dBackend> {
                         return ::c10d::ProcessGroupMPI::createProcessGroupMPI();
                       },
                       {}});
#elif defined(USE_C10D_MPI)
  return unavailable_backend("this build of Lockstep had no header of MPI for LibTorch's engine");
#else
  return lacking_backend("MPI");
#endif
}

BackendEntry ucc_backend() {
#ifdef USE_C10D_UCC
  return c10d_backend({"ucc",
                       [](const C10dBackendArguments& arguments) -> c10::intrusive_ptr<C10dBackend> {
                         return c10::make_intrusive<::c10d::ProcessGroupUCC>(arguments.store, arguments.rank,
                                                                             arguments.size, arguments.timeout);
                       },
                       {}});
#else
  return lacking_backend("UCC");
#endif
}

BackendEntry xccl_backend() {
#ifdef LOCKSTEP_HAS_XCCL
  C10dBackendTraits traits;
  traits.device = c10::DeviceType::XPU;
  traits.stream_ordered = true;
  traits.averages = true;
  traits.reduce_scatters = true;
  traits.reduces_half = true;
  return c10d_backend({"xccl",
                       [](const C10dBackendArguments& arguments) -> c10::intrusive_ptr<C10dBackend> {
                         return c10::make_intrusive<::c10d::ProcessGroupXCCL>(arguments.store, arguments.rank,
                                                                              arguments.size);
                       },
                       std::move(traits)});
#else
  return lacking_backend("XCCL");
#endif
}

}  // namespace lockstep::detail
