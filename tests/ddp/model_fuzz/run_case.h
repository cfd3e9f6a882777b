// Runs a case on one rank: with DDP and by hand, step by step, and compares.
#pragma once

#include <memory>

#include "ddp/model_fuzz/case.h"
#include "ddp/model_fuzz/outcome.h"
#include "lockstep/ddp/process_group.h"

namespace lockstep::fuzz {

// Collective over the case's ranks. `group` is DDP's; `check` another one of the same ranks, for the program written
// by hand and for comparing. Throws nothing. After an outcome other than fine and wrong, both groups have ended.
Outcome run_case(const Case& item, const std::shared_ptr<ProcessGroup>& group,
                 const std::shared_ptr<ProcessGroup>& check);

}  // namespace lockstep::fuzz
