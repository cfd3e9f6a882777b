// The variables through which a parent configures the children that it starts. Private to tests/support.
#pragma once

#include <string>

namespace lockstep::testing {

inline constexpr const char* kRoleVariable = "LOCKSTEP_TEST_ROLE";
inline constexpr const char* kParentVariable = "LOCKSTEP_TEST_PARENT";        // pid
inline constexpr const char* kNamespaceVariable = "LOCKSTEP_TEST_NAMESPACE";  // fd to give to setns(2)

bool role_exists(const std::string& name);

}  // namespace lockstep::testing
