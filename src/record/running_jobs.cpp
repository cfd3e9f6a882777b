#include "record/running_jobs.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/printable.h"
#include "lockstep/collectives/operation.h"
#include "record/record_memory.h"

namespace lockstep::record {
namespace {

constexpr std::string_view kMemoryLink = "/memfd:lockstep-record";
constexpr std::int64_t kLongNs = 100'000'000;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const directory = ::opendir(folder.c_str());
  if (directory == nullptr) return names;
  while (const dirent* const entry = ::readdir(directory)) names.emplace_back(entry->d_name);
  ::closedir(directory);
  return names;
}

std::vector<std::string> arguments_of(const std::string& process) {
  std::ifstream file(process + "/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

// The ranks inherit the descriptor; only the launcher counts.
bool is_launcher(const std::vector<std::string>& arguments) {
  if (arguments.size() < 2 || arguments[1] != "run") return false;
  const std::string& program = arguments[0];
  return program.substr(program.rfind('/') + 1) == "lockstep";
}

// A launcher's guard is a copy of the launcher and its child.
bool is_guard(const std::string& process, const std::vector<std::string>& arguments) {
  std::ifstream file(process + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');  // ") S 4711 ..."
  if (name_end == std::string::npos || name_end + 4 >= line.size()) return false;
  const std::string parent = line.substr(name_end + 4, line.find(' ', name_end + 4) - name_end - 4);
  return arguments_of("/proc/" + parent) == arguments;
}

std::optional<RunningJob> job_of(const std::string& pid) {
  const std::string process = "/proc/" + pid;
  const auto arguments = arguments_of(process);
  if (!is_launcher(arguments) || is_guard(process, arguments)) return std::nullopt;
  RunningJob job;
  std::from_chars(pid.data(), pid.data() + pid.size(), job.launcher);
  job.command = printable_line(fmt::format("{}", fmt::join(arguments, " ")));
  const std::string folder = process + "/fd/";
  for (const std::string& name : names_in(folder)) {
    const std::string path = fmt::format("{}{}", folder, name);
    std::array<char, 64> link{};
    const ssize_t length = ::readlink(path.c_str(), link.data(), link.size());
    if (length <= 0 || !std::string_view(link.data(), static_cast<std::size_t>(length)).starts_with(kMemoryLink))
      continue;
    auto memory = map_record(UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC)));
    if (memory.ok()) job.memory.push_back(*std::move(memory));
  }
  return job;
}

double seconds_between(std::int64_t from, std::int64_t to) {
  return static_cast<double>(std::max(from, to) - from) * 1e-9;
}

std::string name_of(const RecordedOperation& operation, const RecordedGroup& group) {
  return fmt::format("{} #{} of '{}'", to_string(static_cast<OperationKind>(operation.kind)), operation.sequence,
                     group.name);
}

}  // namespace

std::vector<RankRecord> RunningJob::read() const {
  std::vector<RankRecord> ranks;
  for (const auto& mapped : memory) {
    RankRecord record = read_record(record_area(*mapped));
    if (record.pid > 0) ranks.push_back(std::move(record));
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const auto& a, const auto& b) { return std::pair(a.rank, a.pid) < std::pair(b.rank, b.pid); });
  return ranks;
}

std::vector<RunningJob> find_running_jobs() {
  std::vector<RunningJob> jobs;
  for (const std::string& name : names_in("/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (auto job = job_of(name)) jobs.push_back(*std::move(job));
  }
  std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.launcher < b.launcher; });
  return jobs;
}

Result<RunningJob> find_running_job(const std::string& pid) {
  auto jobs = find_running_jobs();
  std::vector<pid_t> pids;
  for (auto& job : jobs) {
    if (std::to_string(job.launcher) == pid || (pid.empty() && jobs.size() == 1)) return std::move(job);
    pids.push_back(job.launcher);
  }
  const std::string which = pids.empty() ? "no job of this user runs on this machine"
                                         : fmt::format("the jobs of this user are {}", fmt::join(pids, ", "));
  return Status(StatusCode::not_found,
                pid.empty() ? fmt::format("name a job: {}", which) : fmt::format("there is no job {}: {}", pid, which));
}

std::string describe_activity(const RankRecord& record, std::int64_t now_ns) {
  std::string text = record.phase < 0 ? "no phase"
                                      : fmt::format("{} for {:.2f} s", to_string(static_cast<PhaseKind>(record.phase)),
                                                    seconds_between(record.phase_since_ns, now_ns));
  for (const auto& group : record.groups) {
    if (group.operations.empty()) continue;
    const RecordedOperation& last = group.operations.back();
    if (last.outcome == Outcome::running) {
      text += fmt::format("; {} has run for {:.2f} s", name_of(last, group), seconds_between(last.started_ns, now_ns));
    }
  }
  if (!record.failure.empty()) text += "; failed: " + record.failure;
  return text;
}

std::vector<WaitingOperation> find_waiting(const std::vector<RankRecord>& ranks, std::int64_t now_ns) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, WaitingOperation> waiting;  // by group and sequence
  const auto latest = [](const RecordedGroup& group) {
    return group.operations.empty() ? 0 : group.operations.back().sequence;
  };
  for (const RankRecord& rank : ranks) {
    for (const RecordedGroup& group : rank.groups) {
      if (group.operations.empty()) continue;
      const RecordedOperation& last = group.operations.back();
      if (last.outcome != Outcome::running || now_ns - last.started_ns < kLongNs) continue;
      WaitingOperation& entry = waiting[{group.id, last.sequence}];
      entry.since_ns = entry.name.empty() ? last.started_ns : std::min(entry.since_ns, last.started_ns);
      entry.name = name_of(last, group);
      entry.group = group.id;
      entry.sequence = last.sequence;
    }
  }
  std::vector<WaitingOperation> found;
  for (auto& [key, entry] : waiting) {
    std::set<int> missing;
    for (const RankRecord& rank : ranks) {
      for (const RecordedGroup& group : rank.groups) {
        if (group.id == key.first && latest(group) < key.second) missing.insert(rank.rank);
      }
    }
    entry.missing.assign(missing.begin(), missing.end());
    found.push_back(std::move(entry));
  }
  return found;
}

std::vector<std::string> describe_missing(const std::vector<RankRecord>& ranks, std::int64_t now_ns) {
  std::vector<std::string> sentences;
  for (const WaitingOperation& entry : find_waiting(ranks, now_ns)) {
    sentences.push_back(entry.missing.empty()
                            ? fmt::format("{} has been reached by all ranks of this machine", entry.name)
                            : fmt::format("{} waits for rank {}", entry.name, fmt::join(entry.missing, ", ")));
  }
  return sentences;
}

}  // namespace lockstep::record
