// Making a failing case smaller, by delta debugging: an edit that leaves the failure in place is kept.
//
// Edits are numbered, so that a seed and a list of numbers name a shrunken case. Pure.
#pragma once

#include <functional>
#include <optional>

#include "ddp/model_fuzz/case.h"

namespace lockstep::fuzz {

// How many edits there are for a case, and what the n-th makes of it: nothing if the result is not smaller or DDP
// need not train it (rules.h).
int edit_count(const Case& item);
std::optional<Case> apply_edit(const Case& item, int n);

// What shrinking reduces.
std::int64_t size_of(const Case& item);

// A case by name. Throws std::invalid_argument if an edit does not apply.
Case case_of(std::uint64_t seed, const std::vector<int>& edits);

// The smallest case reached by edits after which `still_fails` is true, trying at most `trials` of them.
Case shrink(Case item, int trials, const std::function<bool(const Case&)>& still_fails);

}  // namespace lockstep::fuzz
