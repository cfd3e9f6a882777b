#include "ddp/backends/c10d/c10d_engine.h"

#include <fmt/format.h>

#include "ddp/backends/c10d/c10d_group.h"

namespace lockstep::detail {

BackendEntry unavailable_backend(const std::string& reason) {
  return {[reason] { return Status(StatusCode::unavailable, reason); }, nullptr};
}

BackendEntry lacking_backend(const std::string& engine) {
  return unavailable_backend(fmt::format("this LibTorch was built without {}", engine));
}

#if LOCKSTEP_HAS_C10D

BackendEntry c10d_backend(C10dEngine engine) {
  auto shared = std::make_shared<const C10dEngine>(std::move(engine));
  BackendEntry entry;
  entry.available = [] { return Status(); };
  entry.make = [shared](GroupRequest& request) {
    const ProcessGroupOptions& options = request.options();
    return std::make_shared<C10dGroup>(request.own_watch(), shared,
                                       C10dTimeouts{.operation = options.timeout, .init = options.init_timeout});
  };
  const c10::DeviceType device = shared->traits.device;
  if (device != c10::DeviceType::CPU) entry.device = c10::DeviceTypeName(device, /*lower_case=*/true);
  return entry;
}

#endif

}  // namespace lockstep::detail

namespace lockstep {

void register_c10d_backend(const std::string& name, C10dBackendFactory factory, C10dBackendTraits traits) {
#if LOCKSTEP_HAS_C10D
  detail::register_backend(name, detail::c10d_backend({name, std::move(factory), std::move(traits)}));
#else
  throw Error({StatusCode::unavailable,
               fmt::format("register_c10d_backend(\"{}\"): this LibTorch was built without c10d", name)});
#endif
}

}  // namespace lockstep
