// Whether the job has a secret, and a strong one.
#pragma once

#include "doctor/finding.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"

namespace lockstep::doctor {

// `several_hosts`: the job needs one. Pure.
Finding judge_secret(const Result<Secret>& secret, bool several_hosts);

}  // namespace lockstep::doctor
