#include "support/process_resources.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

int count_entries(const char* folder) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++count;
  return count;
}

int count_shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:") != std::string::npos || line.find("(deleted)") != std::string::npos) ++count;
  }
  return count;
}

}  // namespace

ProcessResources ProcessResources::now() {
  // A sanitizer starts its own thread together with the program's first.
  static const bool any_thread_started = (std::thread([] {}).join(), true);
  static_cast<void>(any_thread_started);
  // The iterator's own descriptor is in the count each time, so differences are right.
  return {count_entries("/proc/self/fd"), count_entries("/proc/self/task"), count_shared_mappings()};
}

ProcessResources ProcessResources::settle(const ProcessResources& expected, Deadline deadline) {
  auto resources = now();
  while (resources != expected && !deadline.expired()) {
    std::this_thread::yield();
    resources = now();
  }
  return resources;
}

std::string describe(const ProcessResources& resources) {
  std::string text = fmt::format("{} fds, {} threads, {} shared mappings; open now:", resources.fds, resources.threads,
                                 resources.shared_mappings);
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    text += fmt::format("\n  {} -> {}", entry.path().filename().string(), fs::read_symlink(entry, gone).string());
  }
  text += "\nthreads now:";
  for (const auto& entry : fs::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    std::string system_call;
    std::getline(std::ifstream(entry.path() / "syscall"), system_call);
    text += fmt::format("\n  {} {}, system call {}", entry.path().filename().string(), name, system_call);
  }
  return text;
}

}  // namespace lockstep::testing
