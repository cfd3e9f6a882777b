// Measures the link to another host: latency, the offset of its clock, bandwidth.
#pragma once

#include <string>

#include "base/net/encryption.h"
#include "doctor/network/host_report.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"

namespace lockstep::doctor {

// Connects to the other host's EchoServer at link.ranks_address, and fills in what `link` says about `ranks`. Takes
// about half a second. Blocks until the deadline at most.
void measure_link(LinkReport& link, const Secret& secret, EncryptionPolicy policy, Deadline deadline);

}  // namespace lockstep::doctor
