// The connecting side of a new connection: encryption, then the mutual proof of its purpose.
#pragma once

#include "base/net/auth.h"
#include "base/net/channel.h"
#include "base/net/encryption.h"
#include "base/unique_fd.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"

namespace lockstep {

// Takes a connected socket and returns the channel that both ends have authenticated. It is encrypted if there is a
// secret, the socket is not a Unix socket, and `policy` wants it for this role. Blocks until min(deadline, 5 s).
// unauthenticated: the peer does not have the key, or does not encrypt as this process does; otherwise as
// authenticate_as_connector().
Result<Channel> connect_channel(UniqueFd fd, const Secret& secret, const ConnectionIdentity& identity,
                                EncryptionPolicy policy, Deadline deadline);

}  // namespace lockstep
