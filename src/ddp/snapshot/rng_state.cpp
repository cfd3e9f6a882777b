#include "ddp/snapshot/rng_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <cstring>
#include <mutex>

#include "lockstep/base/status.h"

namespace lockstep::checkpoint {

std::string rng_to_bytes() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  return std::string(static_cast<const char*>(state.data_ptr()), state.nbytes());
}

void rng_from_bytes(std::string_view bytes) {
  at::Tensor state = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::memcpy(state.data_ptr(), bytes.data(), bytes.size());
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  try {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  } catch (const c10::Error& error) {
    throw Error({StatusCode::invalid_argument, fmt::format("these {} bytes are not the state of a generator: {}",
                                                           bytes.size(), error.what_without_backtrace())});
  }
}

}  // namespace lockstep::checkpoint
