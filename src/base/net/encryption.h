// Which connections between hosts are encrypted, if the job has a secret: LOCKSTEP_ENCRYPT.
//
// Nothing is negotiated. Each end knows by itself what a connection must be, and refuses any other, so that no one
// between the two can turn encryption off.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/base/status.h"

namespace lockstep {

enum class EncryptionPolicy : std::uint8_t {
  all,      // every TCP connection
  control,  // every one except the links that carry the data of collectives
};

// LOCKSTEP_ENCRYPT: "all", which is the default, or "control".
Result<EncryptionPolicy> encryption_from_environment();

std::string_view to_string(EncryptionPolicy policy);

// Whether a connection of this role (base/net/auth.h) is encrypted.
bool encrypts(EncryptionPolicy policy, std::string_view role);

}  // namespace lockstep
