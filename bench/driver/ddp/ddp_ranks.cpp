#include "bench/driver/ddp/ddp_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/net/resolve.h"
#include "base/net/socket.h"
#include "bench/driver/machine.h"
#include "bench/driver/mpirun.h"
#include "lockstep/base/deadline.h"

namespace lockstep::bench {
namespace {

constexpr auto kAnswerTimeout = std::chrono::minutes(5);
constexpr int kEndMilliseconds = 5000;
constexpr int kFirstPort = 29500;  // in our own network namespaces every port is free

// Opened for reading and writing, so that open() does not wait for the other side.
UniqueFd make_fifo(const std::string& path, int flags) {
  UniqueFd fd;
  if (::mkfifo(path.c_str(), 0600) == 0) fd = UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC | flags));
  if (!fd.valid()) throw BenchError(fmt::format("cannot create the FIFO {}: {}", path, std::strerror(errno)));
  return fd;
}

// Nothing reserves it until rank 0 listens on it, but the kernel does not soon assign the same port again.
int free_port() {
  const UniqueFd listener = value_or_throw(listen_on(value_or_throw(resolve("127.0.0.1", 0)).front()));
  return value_or_throw(local_address(listener.get())).port();
}

// The variables that are the same on all ranks.
std::vector<std::string> common_environment(const DdpSession& session, int index) {
  std::vector<std::string> environment = {"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1",
                                          "LOCKSTEP_SECRET=" + session.secret};
  const auto add = [&](const char* name, const auto& value) {
    environment.push_back(fmt::format("{}={}", name, value));
  };
  if (session.network == nullptr) {
    add("MASTER_ADDR", "127.0.0.1");
    add("MASTER_PORT", free_port());
  } else {
    add("MASTER_ADDR", session.network->addresses().front());
    add("MASTER_PORT", kFirstPort + index);
    add("LOCKSTEP_INTERFACE", VirtualNetwork::kDevice);
    add("GLOO_SOCKET_IFNAME", VirtualNetwork::kDevice);
  }
  return environment;
}

}  // namespace

DdpRanks::DdpRanks(const DdpSession& session, const DdpContestant& contestant, int index)
    : name_(contestant.name), output_file_(fmt::format("{}/{}.out", session.folder.path(), name_)) {
  const std::string fifos = fmt::format("{}/{}", session.folder.path(), name_);
  for (int rank = 0; rank < session.ranks(); ++rank) {
    commands_.push_back(make_fifo(fmt::format("{}.{}.commands", fifos, rank), 0));
    answers_.push_back(make_fifo(fmt::format("{}.{}.answers", fifos, rank), O_NONBLOCK));
  }
  const DdpBenchOptions& options = session.options;
  std::vector<std::string> command = contestant.program;
  command.insert(command.end(),
                 {options.model, std::to_string(options.batch), contestant.mode, fifos, options.optimizer});
  const std::vector<std::string> environment = common_environment(session, index);
  if (contestant.mpi.empty()) {
    start_one_by_one(session, command, environment);
  } else {
    start_with_mpirun(session, contestant.mpi, command, environment);
  }
}

DdpRanks::~DdpRanks() {
  commands_.clear();  // the ranks see the end of their commands
  for (ChildProcess& child : children_) child.wait_for_end(kEndMilliseconds);
}

void DdpRanks::start_one_by_one(const DdpSession& session, const std::vector<std::string>& command,
                                const std::vector<std::string>& environment) {
  const int ranks = session.ranks();
  const int on_a_host = session.network != nullptr ? session.options.hosts.ranks_each : ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> all = environment;
    for (const auto& [name, value] :
         {std::pair("RANK", rank), std::pair("WORLD_SIZE", ranks), std::pair("LOCAL_RANK", rank % on_a_host),
          std::pair("LOCAL_WORLD_SIZE", on_a_host)}) {
      all.push_back(fmt::format("{}={}", name, value));
    }
    std::vector<std::string> whole;
    if (session.network != nullptr) whole = session.network->command_prefix(rank / on_a_host);
    whole.insert(whole.end(), command.begin(), command.end());
    children_.emplace_back(whole, all, output_file_);
  }
}

void DdpRanks::start_with_mpirun(const DdpSession& session, const std::string& mpi,
                                 const std::vector<std::string>& command, std::vector<std::string> environment) {
  const MpiJob job{.mpi = mpi,
                   .ranks = session.ranks(),
                   .share_cores = cores_for(session.ranks()).empty(),
                   .network = session.network,
                   .folder = session.folder.path()};
  for (const std::string& variable : mpirun_environment(job)) environment.push_back(variable);
  std::vector<std::string> whole = mpirun_command(job);
  whole.insert(whole.end(), command.begin(), command.end());
  children_.emplace_back(whole, environment, output_file_);
}

std::vector<DdpAnswer> DdpRanks::run(int steps) {
  const std::string line = fmt::format("{}\n", steps);
  for (const UniqueFd& commands : commands_) {
    if (::write(commands.get(), line.data(), line.size()) < 0) fail("cannot write a command to its ranks");
  }
  std::vector<DdpAnswer> result;
  for (std::size_t rank = 0; rank < answers_.size(); ++rank) result.push_back(answer_of(rank));
  return result;
}

DdpAnswer DdpRanks::answer_of(std::size_t rank) {
  const Deadline deadline = Deadline::after(kAnswerTimeout);
  std::string text;
  while (text.empty() || text.back() != '\n') {
    check_interrupted();
    std::array<char, 512> block;
    const ssize_t got = ::read(answers_[rank].get(), block.data(), block.size());
    if (got > 0) {
      text.append(block.data(), static_cast<std::size_t>(got));
    } else if (std::any_of(children_.begin(), children_.end(), [](ChildProcess& one) { return one.ended(); })) {
      fail("a process has ended");
    } else if (deadline.expired()) {
      fail(fmt::format("rank {} does not answer", rank));
    } else {
      (void)wait_ready(answers_[rank].get(), POLLIN, Deadline::after(std::chrono::milliseconds(200)));
    }
  }
  DdpAnswer answer;
  std::istringstream(text) >> answer.both_ms >> answer.all_ms >> answer.exposed_ms >> answer.resident_mib >>
      answer.peak_mib >> answer.loss;
  return answer;
}

void DdpRanks::fail(const std::string& what) const {
  std::ifstream file(output_file_);
  std::stringstream written;
  written << file.rdbuf();
  throw BenchError(fmt::format("{}: {}; its processes wrote:\n{}", name_, what, written.str()));
}

}  // namespace lockstep::bench
