// Every difference between the c10d libraries of the LibTorch versions that Lockstep builds with; belongs to
// ddp/torch_compat.h. Without LOCKSTEP_HAS_C10D this LibTorch was built without c10d, and there is nothing here.
#pragma once

#include "ddp/torch_compat.h"

#if defined(USE_DISTRIBUTED) || defined(USE_C10D_GLOO) || defined(USE_C10D_NCCL) || defined(USE_C10D_MPI)
#define LOCKSTEP_HAS_C10D 1

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#if LOCKSTEP_TORCH_AT_LEAST(2, 0)
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

#include "lockstep/ddp/backends.h"

namespace lockstep::compat {

// What runs the collectives of one engine: c10d::ProcessGroup until 1.13, c10d::Backend since 2.0. The calls
// that Lockstep makes have the same names in both.
using C10dBackend = lockstep::C10dBackend;
using C10dWork = c10::intrusive_ptr<::c10d::Work>;

}  // namespace lockstep::compat

#endif
