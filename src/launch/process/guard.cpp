#include "launch/process/guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>

#include "base/net/resolve.h"
#include "base/net/socket.h"
#include "base/process_state.h"
#include "membership/attester.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kEndTime = 5s;  // for processes to end after SIGKILL

// A positive number adds the group, a negative one removes it, 0 comes with the attester's socket. The link keeps
// messages of several writers apart.
using Message = pid_t;

void send_message(int fd, Message message) {
  while (::send(fd, &message, sizeof(message), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

// Room for one descriptor beside a message.
struct Parcel {
  Message message = 0;
  iovec part{&message, sizeof(message)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{.msg_name = nullptr,
                .msg_namelen = 0,
                .msg_iov = &part,
                .msg_iovlen = 1,
                .msg_control = control.data(),
                .msg_controllen = control.size(),
                .msg_flags = 0};
};

bool send_socket(int link, int socket) {
  Parcel parcel;
  cmsghdr* const attached = CMSG_FIRSTHDR(&parcel.header);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(attached), &socket, sizeof(int));
  return ::sendmsg(link, &parcel.header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(Message));
}

// Closes everything but `kept`: the guard must not keep a pipe or terminal of the launcher open.
void close_all_but(int kept) {
  if (kept > 3) ::close_range(3, static_cast<unsigned>(kept - 1), 0);
  ::close_range(static_cast<unsigned>(kept + 1), ~0U, 0);
  const int null = ::open("/dev/null", O_RDWR);
  for (const int stream : {0, 1, 2}) ::dup2(null, stream);
  ::close(null);
}

class Watch {
 public:
  Watch(const GuardOptions& options, const ProcessIdentity& launcher, int link)
      : options_(options), launcher_(launcher), link_(link) {}

  void run() {
    Message message = 0;
    while (receive(message)) {
      if (message > 0) groups_[message] = find_process(message).value_or(ProcessIdentity{.pid = message});
      if (message < 0) groups_.erase(-message);
    }
    for (const auto& [group, leader] : groups_) ::kill(-group, SIGKILL);
    if (attester_) {
      for (const auto& [group, leader] : groups_) attest(leader, options_.rank_roster);
      attest(launcher_, options_.node_roster);
    }
    std::error_code ignored;
    std::filesystem::remove_all(options_.folder, ignored);
    if (attester_) std::this_thread::sleep_for(options_.stay);
  }

 private:
  // False once the launcher has ended.
  bool receive(Message& message) {
    Parcel parcel;
    ssize_t got = 0;
    while ((got = ::recvmsg(link_, &parcel.header, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
    }
    if (got != static_cast<ssize_t>(sizeof(Message))) return false;
    message = parcel.message;
    if (const cmsghdr* const attached = CMSG_FIRSTHDR(&parcel.header); attached != nullptr) {
      int socket = -1;
      std::memcpy(&socket, CMSG_DATA(attached), sizeof(int));
      auto attester = membership::Attester::open({.listening_fd = socket, .secret = options_.secret});
      if (attester.ok()) attester_ = *std::move(attester);
    }
    return true;
  }

  // What cannot be attested counts as silent: nothing is lost but time.
  void attest(const ProcessIdentity& process, const std::string& roster) {
    const Deadline deadline = Deadline::after(kEndTime);
    while (!has_ended(process)) {
      if (deadline.expired()) return;
      std::this_thread::sleep_for(1ms);
    }
    (void)attester_->attest(process, roster);
  }

  const GuardOptions& options_;
  const ProcessIdentity launcher_;
  const int link_;
  std::map<pid_t, ProcessIdentity> groups_;  // and their leaders
  std::unique_ptr<membership::Attester> attester_;
};

[[noreturn]] void watch(const GuardOptions& options, const ProcessIdentity& launcher, int link) {
  ::setsid();
  ::prctl(PR_SET_NAME, "lockstep-guard");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(signal, SIG_IGN);
  close_all_but(link);
  Watch(options, launcher, link).run();
  ::_exit(0);
}

Status not_started(const char* what) {
  return Status(StatusCode::resource_exhausted,
                fmt::format("cannot create {} for the guard: {}", what, errno_text(errno)));
}

}  // namespace

Result<Guard> Guard::start(const GuardOptions& options) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return not_started("a socket");
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const ProcessIdentity launcher = this_process();
  const pid_t pid = ::fork();
  if (pid < 0) return not_started("a process");
  if (pid == 0) {
    writer.reset();
    watch(options, launcher, reader.get());
  }
  return Guard(std::move(writer), pid);
}

Guard::~Guard() {
  if (!link_.valid()) return;
  ::kill(pid_, SIGKILL);  // while the link is open, so that it does nothing more; SIGKILL also ends a stopped process
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<std::string> Guard::open_attester(const std::string& host) const {
  const auto addresses = resolve(host, 0);
  if (!addresses.ok()) return addresses.status();
  const auto listener = listen_on(addresses->front());
  if (!listener.ok()) return listener.status().with_context("opening the attester");
  const auto address = local_address(listener->get());
  if (!address.ok()) return address.status();
  if (!send_socket(link_.get(), listener->get())) return not_started("an attester");
  return address->to_string();
}

void Guard::add(int fd, pid_t pgid) { send_message(fd, pgid); }

void Guard::remove(pid_t pgid) const { send_message(link_.get(), -pgid); }

}  // namespace lockstep::launch
