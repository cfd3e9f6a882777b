#include "support/process_set.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "support/child.h"
#include "support/child_process.h"
#include "support/hosts.h"

namespace lockstep::testing {
namespace {

// True if `text` is in a line of `output` that is complete.
bool has_line(const std::string& output, const std::string& text) {
  const auto found = output.find(text);
  return found != std::string::npos && output.find('\n', found + text.size()) != std::string::npos;
}

}  // namespace

class ProcessSet::Impl {
 public:
  Impl() : wake_(::eventfd(0, EFD_CLOEXEC)) {
    if (!wake_.valid()) throw std::system_error(errno, std::generic_category(), "eventfd");
  }

  ~Impl() {
    for (auto& child : children_) child.send_signal(SIGKILL);
    if (!collector_.joinable()) {  // starting a later process failed
      for (auto& child : children_) child.reap();
      return;
    }
    wait_until(Deadline::after(std::chrono::hours(1)), [this] { return all_ended(); });
    const std::uint64_t one = 1;
    if (::write(wake_.get(), &one, sizeof(one)) < 0) std::abort();
    collector_.join();
  }

  // Before collect() only.
  void start(const ChildCommand& command) { children_.push_back(spawn(command)); }
  void collect() {
    collector_ = std::thread([this] { run_collector(); });
  }

  template <typename Condition>
  bool wait_until(Deadline deadline, Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline.when(), condition);
  }

  bool all_ended() const {
    for (const auto& child : children_) {
      if (!child.status) return false;
    }
    return true;
  }

  const ChildProcess& child(int rank) const { return children_.at(static_cast<std::size_t>(rank)); }

  std::vector<ChildProcess> children_;  // fixed once the collector runs; text and status: mutex_
  mutable std::mutex mutex_;

 private:
  void run_collector();

  std::condition_variable changed_;
  UniqueFd wake_;
  std::thread collector_;
};

void ProcessSet::Impl::run_collector() {
  while (true) {
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
    for (const auto& child : children_) {  // only this thread changes what is read here
      for (const auto& stream : child.streams) {
        if (stream.valid()) polled.push_back({stream.get(), POLLIN, 0});
      }
      if (!child.status) polled.push_back({child.pid_fd.get(), POLLIN, 0});
    }
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;  // interrupted
    if (polled.front().revents != 0) return;

    const std::lock_guard lock(mutex_);
    for (auto& child : children_) child.update();
    changed_.notify_all();
  }
}

ProcessSet::ProcessSet(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProcessSet::ProcessSet(ProcessSet&&) noexcept = default;
ProcessSet& ProcessSet::operator=(ProcessSet&&) noexcept = default;
ProcessSet::~ProcessSet() = default;

int ProcessSet::size() const { return static_cast<int>(impl_->children_.size()); }
pid_t ProcessSet::pid(int rank) const { return impl_->child(rank).pid; }

bool ProcessSet::kill(int rank, int signal) { return impl_->child(rank).send_signal(signal); }

bool ProcessSet::wait_all(Deadline deadline) {
  return impl_->wait_until(deadline, [this] { return impl_->all_ended(); });
}

std::optional<ExitStatus> ProcessSet::wait(int rank, Deadline deadline) {
  impl_->wait_until(deadline, [&] { return impl_->child(rank).status.has_value(); });
  return exit_status(rank);
}

std::optional<ExitStatus> ProcessSet::exit_status(int rank) const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->child(rank).status;
}

bool ProcessSet::all_succeeded() const {
  const std::lock_guard lock(impl_->mutex_);
  for (const auto& child : impl_->children_) {
    if (!child.status || !child.status->success()) return false;
  }
  return true;
}

bool ProcessSet::wait_for_line(int rank, const std::string& text, Deadline deadline) {
  bool found = false;
  impl_->wait_until(deadline, [&] {
    const auto& child = impl_->child(rank);
    found = has_line(child.text[0], text) || has_line(child.text[1], text);
    return found || child.status.has_value();
  });
  return found;
}

std::string ProcessSet::output(int rank) const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->child(rank).text[0];
}

std::string ProcessSet::error_output(int rank) const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->child(rank).text[1];
}

std::string ProcessSet::report() const {
  const std::lock_guard lock(impl_->mutex_);
  std::string text;
  for (std::size_t rank = 0; rank < impl_->children_.size(); ++rank) {
    const auto& child = impl_->children_[rank];
    text +=
        fmt::format("rank {} (pid {}): {}\n", rank, child.pid, child.status ? child.status->to_string() : "running");
    if (!child.text[0].empty()) text += fmt::format("  stdout:\n{}", child.text[0]);
    if (!child.text[1].empty()) text += fmt::format("  stderr:\n{}", child.text[1]);
  }
  return text;
}

namespace {

bool is_inherited(std::string_view name) {
  constexpr std::array<std::string_view, 6> kOwn = {"RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                                    "MASTER_ADDR", "MASTER_PORT"};
  for (const auto own : kOwn) {
    if (name == own) return false;
  }
  return name == "LOCKSTEP_LOG" || !name.starts_with("LOCKSTEP_");
}

Environment inherited_environment() {
  Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    const auto equals = line.find('=');
    if (equals == std::string_view::npos || !is_inherited(line.substr(0, equals))) continue;
    result[std::string(line.substr(0, equals))] = std::string(line.substr(equals + 1));
  }
  return result;
}

}  // namespace

ProcessSet ProcessSet::start(int world_size, const StartOptions& options, const CommandInside& command_inside) {
  const std::string master = options.hosts == nullptr ? "127.0.0.1" : HostSet::address(0);
  const Listener listener = listen_inside(options.hosts == nullptr ? -1 : options.hosts->namespace_fd(0), master);

  auto impl = std::make_unique<ProcessSet::Impl>();
  for (int rank = 0; rank < world_size; ++rank) {
    const int host = options.hosts == nullptr ? 0 : rank * options.hosts->size() / world_size;
    const int namespace_fd = options.hosts == nullptr ? -1 : options.hosts->namespace_fd(host);
    ChildCommand command = command_inside(namespace_fd);
    Environment variables = inherited_environment();
    variables["RANK"] = std::to_string(rank);
    variables["WORLD_SIZE"] = std::to_string(world_size);
    variables["MASTER_ADDR"] = master;
    variables["MASTER_PORT"] = std::to_string(listener.port);
    if (const char* backend = std::getenv("LOCKSTEP_TEST_BACKEND")) variables["LOCKSTEP_BACKEND"] = backend;
    if (options.hosts != nullptr) variables["LOCKSTEP_SECRET"] = "the secret of a test, and no other one";
    if (rank == 0) {
      variables["LOCKSTEP_STORE_FD"] = std::to_string(listener.fd.get());
      command.fds.push_back(listener.fd.get());
    }
    for (const auto& [name, value] : options.environment) variables[name] = value;
    if (options.rank_variables) {
      for (const auto& [name, value] : options.rank_variables(rank)) variables[name] = value;
    }
    command.environment.merge(variables);
    impl->start(command);
  }
  impl->collect();
  return ProcessSet(std::move(impl));
}

ProcessSet start_ranks(int world_size, const std::string& role, const StartOptions& options) {
  if (!role_exists(role)) throw std::invalid_argument("no LOCKSTEP_PROCESS_ROLE is called " + role);
  return ProcessSet::start(world_size, options, [&](int namespace_fd) {
    ChildCommand command;
    command.arguments = {"/proc/self/exe"};
    command.environment[kRoleVariable] = role;
    command.environment[kParentVariable] = std::to_string(::getpid());
    if (namespace_fd >= 0) {
      command.environment[kNamespaceVariable] = std::to_string(namespace_fd);
      command.fds.push_back(namespace_fd);
    }
    return command;
  });
}

ProcessSet start_program(int world_size, const std::vector<std::string>& arguments, const StartOptions& options) {
  return ProcessSet::start(world_size, options, [&](int namespace_fd) {
    // For a program that does not use the harness, util-linux ties its lifetime to the test.
    ChildCommand command;
    if (namespace_fd >= 0) {
      command.arguments = {"nsenter", fmt::format("--net=/proc/{}/fd/{}", ::getpid(), namespace_fd)};
    }
    for (const char* part : {"setpriv", "--pdeathsig", "KILL", "--"}) command.arguments.emplace_back(part);
    command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
    return command;
  });
}

}  // namespace lockstep::testing
