// The child's side of the harness: from main() to the role.
#include "support/child.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "support/process_set.h"

namespace lockstep::testing {
namespace {

std::map<std::string, ProcessRole>& roles() {
  static std::map<std::string, ProcessRole> instance;
  return instance;
}

// A variable of the harness is removed from the environment once read: a role may start programs.
std::optional<std::string> take_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  std::string copy = value;
  ::unsetenv(name);
  return copy;
}

void die_with_parent() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have ended before the line above: then no signal will come.
  const auto parent = take_variable(kParentVariable);
  if (parent && std::stol(*parent) != ::getppid()) std::_Exit(kUncaughtExceptionCode);
}

void enter_namespace() {
  const auto value = take_variable(kNamespaceVariable);
  if (!value) return;
  const int fd = std::stoi(*value);
  if (::setns(fd, CLONE_NEWNET) != 0) {
    std::perror("setns into the network namespace of the test");
    std::_Exit(kUncaughtExceptionCode);
  }
  ::close(fd);
}

}  // namespace

RoleRegistrar::RoleRegistrar(const char* name, ProcessRole role) {
  if (!roles().emplace(name, role).second) {
    fmt::print(stderr, "two process roles are called {}; rename one\n", name);
    std::abort();
  }
}

bool role_exists(const std::string& name) { return roles().contains(name); }

std::optional<int> run_role_of_child() {
  const auto role = take_variable(kRoleVariable);
  if (!role) return std::nullopt;
  die_with_parent();
  enter_namespace();
  try {
    return roles().at(*role)();
  } catch (const std::exception& error) {
    fmt::print(stderr, "role {} ended with an exception: {}\n", *role, error.what());
  }
  return kUncaughtExceptionCode;
}

void print_mark(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace lockstep::testing
