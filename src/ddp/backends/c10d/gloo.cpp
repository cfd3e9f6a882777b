// LibTorch's ProcessGroupGloo as an engine.
#include "ddp/backends/c10d/c10d_engine.h"

#if defined(USE_C10D_GLOO) && __has_include(<gloo/context.h>)
#include <csignal>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <limits>

namespace lockstep::detail {

namespace {

// Gloo writes to sockets without MSG_NOSIGNAL: a lost peer would end this process. Python ignores the signal too.
void ignore_sigpipe() {
  struct sigaction now = {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

c10::intrusive_ptr<C10dBackend> make_gloo(const C10dBackendArguments& arguments) {
  ignore_sigpipe();
  auto options = ::c10d::ProcessGroupGloo::Options::create(arguments.timeout);
  options->devices.push_back(::c10d::ProcessGroupGloo::createDeviceForHostname(arguments.address));
  return c10::make_intrusive<::c10d::ProcessGroupGloo>(arguments.store, arguments.rank, arguments.size, options);
}

// A receive that runs out of time makes Gloo end every connection of its context and every wait for one, and there
// is no other way to ask for it. No rank sends with this tag.
void close_gloo(C10dBackend& gloo) {
  if (gloo.getSize() == 1) return;
  std::vector<at::Tensor> nothing{at::empty({1}, at::kByte)};
  try {
    gloo.recvAnysource(nothing, std::numeric_limits<int>::max())->wait(std::chrono::milliseconds(1));
  } catch (const std::exception&) {  // as intended
  }
}

}  // namespace

BackendEntry gloo_backend() {
  C10dBackendTraits traits;
  traits.close = close_gloo;
  return c10d_backend({.name = "gloo", .make = make_gloo, .traits = std::move(traits)});
}

}  // namespace lockstep::detail

#elif defined(USE_C10D_GLOO)

namespace lockstep::detail {

BackendEntry gloo_backend() {
  return unavailable_backend("this build of Lockstep had no headers of Gloo (Debian: apt-get install libgloo-dev)");
}

}  // namespace lockstep::detail

#else

namespace lockstep::detail {

BackendEntry gloo_backend() { return lacking_backend("Gloo"); }

}  // namespace lockstep::detail

#endif
