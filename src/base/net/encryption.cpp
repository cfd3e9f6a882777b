#include "base/net/encryption.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/printable.h"

namespace lockstep {

Result<EncryptionPolicy> encryption_from_environment() {
  const char* value = std::getenv("LOCKSTEP_ENCRYPT");
  if (value == nullptr || std::string_view(value) == "all") return EncryptionPolicy::all;
  if (std::string_view(value) == "control") return EncryptionPolicy::control;
  return Status(
      StatusCode::invalid_argument,
      fmt::format("LOCKSTEP_ENCRYPT is '{}'; use 'all' (the default) or, on a network that you trust, 'control', "
                  "which leaves the data of collectives unencrypted",
                  printable(value)));
}

std::string_view to_string(EncryptionPolicy policy) { return policy == EncryptionPolicy::all ? "all" : "control"; }

bool encrypts(EncryptionPolicy policy, std::string_view role) {
  return policy == EncryptionPolicy::all || role != "data";
}

}  // namespace lockstep
