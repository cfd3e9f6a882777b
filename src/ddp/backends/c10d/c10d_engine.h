// One of LibTorch's engines, or a user's: how it is created and what it can do.
#pragma once

#include <string>

#include "ddp/backends/c10d/c10d_headers.h"
#include "ddp/backends/registry.h"

namespace lockstep::detail {

struct C10dEngine {
  std::string name;
  C10dBackendFactory make;
  C10dBackendTraits traits;
};

// The registry's entries for engines that LibTorch may have: available() returns "this LibTorch was built without
// NCCL" if it does not have it.
BackendEntry gloo_backend();
BackendEntry mpi_of_libtorch_backend();
BackendEntry nccl_backend();
BackendEntry ucc_backend();
BackendEntry xccl_backend();

// For their definitions: an engine that cannot be used here, for the reason given or because this LibTorch lacks
// `engine`, and one that can.
BackendEntry unavailable_backend(const std::string& reason);
BackendEntry lacking_backend(const std::string& engine);
BackendEntry c10d_backend(C10dEngine engine);

}  // namespace lockstep::detail
