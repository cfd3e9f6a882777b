// What DDP promises to train: the generator makes only such cases, and the shrinker leaves no others.
#pragma once

#include <string>

#include "ddp/model_fuzz/case.h"

namespace lockstep::fuzz {

// Empty if DDP must train this case without an error; else why it need not.
std::string why_unsupported(const Case& item);

// True if replicas drift apart by design: from some step on, the hook does not average.
bool drifts(const Options& options);
// True if the hook averages as exactly as the all-reduce, in all steps that a case can have.
bool is_exact(const Options& options);
// True if one process with the whole batch must get the same gradients.
bool equals_whole_batch(const Case& item);

}  // namespace lockstep::fuzz
