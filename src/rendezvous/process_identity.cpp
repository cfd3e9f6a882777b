#include "rendezvous/process_identity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <fstream>

#include "base/host_name.h"
#include "base/process_state.h"
#include "base/random.h"

namespace lockstep {
namespace {

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string link_target(const char* path) {
  std::array<char, PATH_MAX> target{};
  const auto size = ::readlink(path, target.data(), target.size());
  return size > 0 ? std::string(target.data(), static_cast<std::size_t>(size)) : std::string();
}

// Empty if the machine or the namespace is unknown: then nothing may be compared.
std::string space(const std::string& machine, const char* namespace_path) {
  const std::string name = link_target(namespace_path);
  return machine.empty() || name.empty() ? std::string() : machine + "/" + name;
}

}  // namespace

MemberRecord claim_rank(int rank, int world_size, const std::string& host_id) {
  const std::string machine = first_line_of("/proc/sys/kernel/random/boot_id");
  return {.nonce = random_hex(16),
          .rank = rank,
          .world_size = world_size,
          .pid = ::getpid(),
          .host = host_name(),
          .process_space = process_space(),
          .network_space = space(machine, "/proc/self/ns/net"),
          .host_id = host_id,
          .unix_name = "lockstep-" + random_hex(16),
          .machine = machine,
          .processors = static_cast<std::int32_t>(std::max(0L, ::sysconf(_SC_NPROCESSORS_ONLN)))};
}

bool known_to_have_ended(const MemberRecord& record, const MemberRecord& self) {
  if (record.process_space.empty() || record.process_space != self.process_space) return false;
  const std::string stat = first_line_of(fmt::format("/proc/{}/stat", record.pid));
  if (stat.empty()) return ::access("/proc/self/stat", R_OK) == 0;
  // "pid (name) state ...", where the name may contain anything.
  const auto name_end = stat.rfind(") ");
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return false;
  const char state = stat[name_end + 2];
  return state == 'Z' || state == 'X';
}

}  // namespace lockstep
