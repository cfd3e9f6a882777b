#include "doctor/network/reach.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>

namespace lockstep::doctor {
namespace {

Reach reach_of(int error) {
  switch (error) {
    case 0: return Reach::answered;
    case ECONNREFUSED: return Reach::refused;
    case ECONNRESET: return Reach::reset;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EACCES:
    case EPERM: return Reach::unreachable;
    default: return Reach::dropped;
  }
}

}  // namespace

const char* to_string(Reach reach) {
  switch (reach) {
    case Reach::answered: return "answers";
    case Reach::refused: return "refused";
    case Reach::reset: return "reset";
    case Reach::unreachable: return "unreachable";
    case Reach::dropped: return "dropped";
    case Reach::no_secret: return "no secret";
    case Reach::unknown: return "unknown";
  }
  return "unknown";
}

std::string advice_for(Reach reach, const std::string& address, bool is_running) {
  switch (reach) {
    case Reach::answered: return {};
    case Reach::refused:
      return is_running
                 ? fmt::format("a process listens at {}, so a firewall answers with RST: allow TCP to it", address)
                 : fmt::format(
                       "no process listens at {}, or a firewall answers with RST: start the same `lockstep "
                       "doctor` there, then look at the firewall",
                       address);
    case Reach::reset:
      return fmt::format(
          "{} accepts connections and then ends them: a firewall or proxy in between, or another program "
          "has the port",
          address);
    case Reach::unreachable:
      return fmt::format(
          "there is no way to {}: `ip route get` its address; is the interface up, does LOCKSTEP_INTERFACE "
          "name the right one on both hosts, does a firewall answer \"prohibited\"?",
          address);
    case Reach::dropped:
      return fmt::format(
          "packets to {} vanish: a firewall drops them (allow TCP between the hosts), or the host or its "
          "link is down (`ping` it)",
          address);
    case Reach::no_secret:
      return fmt::format(
          "{} does not prove that it has this job's secret: use the same LOCKSTEP_SECRET_FILE on all hosts, "
          "and a port that no other program has",
          address);
    case Reach::unknown: return "start the same `lockstep doctor` there";
  }
  return {};
}

Attempt attempt_to_connect(const SocketAddress& address, Deadline deadline) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return {.reach = Reach::unknown};
  const int one = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  int error = 0;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      if (!wait_ready(fd.get(), POLLOUT, deadline).ok()) return {.reach = Reach::dropped};
      socklen_t length = sizeof(error);
      if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    }
  }
  const Reach reach = reach_of(error);
  return reach == Reach::answered ? Attempt{.reach = reach, .fd = std::move(fd)} : Attempt{.reach = reach};
}

}  // namespace lockstep::doctor
