#include "bench/driver/engines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "bench/driver/mpirun.h"
#include "bench/worker/start_line.h"
#include "lockstep/base/deadline.h"

namespace lockstep::bench {
namespace {

constexpr auto kStartTimeout = std::chrono::minutes(2);
constexpr auto kRunTimeout = std::chrono::minutes(10);

std::string program_of(const Session& session, const std::string& engine) {
  return fmt::format("{}/lockstep-bench-{}", session.programs, engine);
}

int ranks_of(const Session& session, const std::string& engine) {
  return engine == "link" ? session.options.hosts.hosts : session.ranks;
}

UniqueFd make_shared_memory(std::size_t bytes) {
  UniqueFd fd(::memfd_create("lockstep-bench", MFD_CLOEXEC));
  if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    throw BenchError(fmt::format("cannot create {} bytes of shared memory: {}", bytes, std::strerror(errno)));
  return fd;
}

MpiJob mpi_job(const Session& session, const std::string& engine) {
  return {.mpi = engine,
          .ranks = session.ranks,
          .share_cores = session.cores.empty(),
          .network = session.network,
          .folder = session.folder.path()};
}

std::vector<std::string> arguments_of(const Session& session, const std::string& engine, const std::string& socket,
                                      int shared_fd) {
  std::vector<std::string> arguments = {program_of(session, engine),
                                        "--socket",
                                        socket,
                                        "--shared",
                                        fmt::format("/proc/{}/fd/{}", ::getpid(), shared_fd),
                                        "--size",
                                        std::to_string(ranks_of(session, engine)),
                                        "--arena",
                                        std::to_string(session.arena)};
  const auto add = [&](const char* name, const std::string& value) {
    arguments.insert(arguments.end(), {name, value});
  };
  if (!session.cores.empty()) add("--cores", fmt::format("{}", fmt::join(session.cores, ",")));
  if (session.network != nullptr) add("--hosts", fmt::format("{}", fmt::join(session.network->addresses(), ",")));
  const std::vector<Memory>& memories = session.options.memories;
  const bool registered = std::find(memories.begin(), memories.end(), Memory::registered) != memories.end();
  if (engine == "lockstep" && registered) add("--registered", "1");
  if (engine == "gloo") {
    const std::string folder = session.folder.path() + "/gloo";
    std::filesystem::create_directory(folder);
    add("--rendezvous", folder);
  } else if (engine == "lockstep") {
    // In our own network namespaces every port is free.
    add("--rendezvous", session.network != nullptr ? fmt::format("tcp://{}:29500", session.network->addresses()[0])
                                                   : fmt::format("file://{}/lockstep", session.folder.path()));
  }
  return arguments;
}

}  // namespace

std::string why_missing(const Session& session, const std::string& engine) {
  if (const std::string program = program_of(session, engine); ::access(program.c_str(), X_OK) != 0)
    return fmt::format(
        "{} is missing: there is no {}; a peer's worker is built only if its development package is installed", engine,
        program);
  return is_mpi(engine) ? why_no_mpirun(engine) : "";
}

EngineProcesses::EngineProcesses(const Session& session, const std::string& engine)
    : name_(engine),
      output_file_(fmt::format("{}/{}.log", session.folder.path(), engine)),
      ranks_(static_cast<std::size_t>(ranks_of(session, engine))),
      shared_(make_shared_memory(kSharedPageBytes + (engine == "limit" ? ranks_ * session.arena : 0))),
      listener_(listen_at(fmt::format("{}/{}.sock", session.folder.path(), engine))) {
  launch(session);
  accept_ranks();
  for (const Reply& reply : collect()) {
    if (!reply.error.empty()) fail(reply.error);
  }
}

EngineProcesses::~EngineProcesses() {
  for (Channel& channel : channels_) {
    try {
      channel.send(Command{.kind = CommandKind::quit});
    } catch (const BenchError&) {
      // The rank has already ended.
    }
  }
  channels_.clear();
  for (ChildProcess& child : children_) child.wait_for_end(5000);
}

void EngineProcesses::launch(const Session& session) {
  const std::string socket = fmt::format("{}/{}.sock", session.folder.path(), name_);
  const std::vector<std::string> arguments = arguments_of(session, name_, socket, shared_.get());
  std::vector<std::string> environment = {"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1",
                                          "LOCKSTEP_SECRET=" + session.secret};
  if (is_mpi(name_)) {
    const MpiJob job = mpi_job(session, name_);
    std::vector<std::string> command = mpirun_command(job);
    for (const std::string& variable : mpirun_environment(job)) environment.push_back(variable);
    command.insert(command.end(), arguments.begin(), arguments.end());
    children_.emplace_back(command, environment, output_file_);
    return;
  }
  const int ranks_each = name_ == "link" ? 1 : session.options.hosts.ranks_each;
  for (int rank = 0; rank < static_cast<int>(ranks_); ++rank) {
    std::vector<std::string> command;
    if (session.network != nullptr) command = session.network->command_prefix(rank / ranks_each);
    command.insert(command.end(), arguments.begin(), arguments.end());
    command.insert(command.end(), {"--rank", std::to_string(rank)});
    if (session.network != nullptr)
      command.insert(command.end(),
                     {"--address", session.network->addresses()[static_cast<std::size_t>(rank / ranks_each)]});
    children_.emplace_back(command, environment, output_file_);
  }
}

void EngineProcesses::accept_ranks() {
  const Deadline deadline = Deadline::after(kStartTimeout);
  std::vector<std::optional<Channel>> arrived(ranks_);
  pids_.resize(ranks_);
  for (std::size_t count = 0; count < ranks_;) {
    check_interrupted();
    if (deadline.expired()) fail(fmt::format("only {} of {} ranks connected within two minutes", count, ranks_));
    for (ChildProcess& child : children_) {
      if (child.ended()) fail(fmt::format("process {} ended while starting", child.pid()));
    }
    pollfd listening{listener_.get(), POLLIN, 0};
    if (::poll(&listening, 1, deadline.poll_timeout_ms(100)) <= 0) continue;
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) continue;
    Channel channel(std::move(fd));
    const Hello hello = channel.receive_hello();
    const auto rank = static_cast<std::size_t>(hello.rank);
    if (rank >= ranks_ || arrived[rank]) fail(fmt::format("two processes claim rank {}", hello.rank));
    arrived[rank].emplace(std::move(channel));
    pids_[rank] = hello.pid;
    ++count;
  }
  for (auto& channel : arrived) channels_.push_back(std::move(*channel));
}

std::vector<Reply> EngineProcesses::run(const Command& command) {
  for (Channel& channel : channels_) channel.send(command);
  return collect();
}

std::vector<Reply> EngineProcesses::collect() {
  const Deadline deadline = Deadline::after(kRunTimeout);
  std::vector<Reply> replies(ranks_);
  std::vector<pollfd> waiting;
  for (const Channel& channel : channels_) waiting.push_back({channel.fd(), POLLIN, 0});
  for (std::size_t missing = ranks_; missing > 0;) {
    check_interrupted();
    if (deadline.expired()) fail("its ranks did not answer within ten minutes");
    if (::poll(waiting.data(), waiting.size(), deadline.poll_timeout_ms(200)) <= 0) continue;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (waiting[rank].revents == 0) continue;
      try {
        replies[rank] = channels_[rank].receive_reply();
      } catch (const BenchError& error) {
        fail(fmt::format("rank {} (pid {}) has ended", rank, pids_[rank]));
      }
      waiting[rank].fd = -1;
      waiting[rank].revents = 0;
      --missing;
    }
  }
  return replies;
}

void EngineProcesses::fail(const std::string& what) {
  std::ifstream file(output_file_);
  std::stringstream output;
  output << file.rdbuf();
  const std::string written = output.str().empty() ? "nothing" : fmt::format("\n{}", output.str());
  throw BenchError(fmt::format("{}: {}; its processes wrote: {}", name_, what, written));
}

}  // namespace lockstep::bench
