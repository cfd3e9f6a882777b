// c10d, if this LibTorch has it: then LOCKSTEP_HAS_C10D is defined. Else this header is empty.
#pragma once

#if defined(USE_DISTRIBUTED) || defined(USE_C10D_GLOO) || defined(USE_C10D_NCCL) || defined(USE_C10D_MPI)
#define LOCKSTEP_HAS_C10D 1

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace lockstep::detail {

using C10dWork = c10::intrusive_ptr<::c10d::Work>;

}  // namespace lockstep::detail

#endif
