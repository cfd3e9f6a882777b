#include "base/net/resolve.h"

#include <fmt/format.h>
#include <netdb.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/start_thread.h"

namespace lockstep {
namespace {

using Addresses = Result<std::vector<SocketAddress>>;

int look_up_with_flags(const char* name, int flags, std::vector<SocketAddress>& addresses) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(name, nullptr, &hints, &found); error != 0) return error;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  return 0;
}

int look_up_name(const char* name, std::vector<SocketAddress>& addresses) {
  return look_up_with_flags(name, 0, addresses);
}

Addresses result_of(int error, std::vector<SocketAddress> addresses, const std::string& host) {
  if (error != 0) {
    const std::string reason = error == EAI_SYSTEM ? errno_text(errno) : ::gai_strerror(error);
    return Status(StatusCode::unavailable,
                  fmt::format("cannot resolve host '{}': {}; check the name, or use an address", host, reason));
  }
  if (addresses.empty()) {
    return Status(StatusCode::unavailable, fmt::format("host '{}' has no IPv4 or IPv6 address", host));
  }
  return addresses;
}

// One look-up, shared by its thread and all callers that wait for it.
struct LookUp {
  std::mutex mutex;
  std::condition_variable done;
  std::optional<Addresses> result;  // guarded by mutex
};

// The look-ups that have not ended. Leaked on purpose: a thread that was left behind may outlive static objects.
struct LookUps {
  std::mutex mutex;
  std::map<std::pair<LookUpName, std::string>, std::shared_ptr<LookUp>> by_name;  // guarded by mutex
};
LookUps& look_ups() {
  static auto* const instance = new LookUps;
  return *instance;
}

void run(LookUpName look_up, const std::string& name, const std::shared_ptr<LookUp>& shared) {
  std::vector<SocketAddress> addresses;
  const int error = look_up(name.c_str(), addresses);
  Addresses result = result_of(error, std::move(addresses), name);
  {
    const std::lock_guard lock(look_ups().mutex);
    look_ups().by_name.erase({look_up, name});
  }
  {
    const std::lock_guard lock(shared->mutex);
    shared->result = std::move(result);
  }
  shared->done.notify_all();
}

Result<std::shared_ptr<LookUp>> begin_or_join(LookUpName look_up, const std::string& name) {
  const std::lock_guard lock(look_ups().mutex);
  auto& shared = look_ups().by_name[{look_up, name}];
  if (shared) return shared;
  auto begun = std::make_shared<LookUp>();
  auto thread =
      start_thread(fmt::format("looks up host '{}'", name), [look_up, name, begun] { run(look_up, name, begun); });
  if (!thread.ok()) {
    look_ups().by_name.erase({look_up, name});
    return thread.status();
  }
  thread->detach();
  shared = begun;
  return begun;
}

void set_port(std::vector<SocketAddress>& addresses, std::uint16_t port) {
  for (SocketAddress& address : addresses) address.set_port(port);
}

}  // namespace

Result<std::vector<SocketAddress>> resolve(const std::string& host, std::uint16_t port, Deadline deadline) {
  return resolve_with(look_up_name, host, port, deadline);
}

Result<std::vector<SocketAddress>> resolve_with(LookUpName look_up, const std::string& host, std::uint16_t port,
                                                Deadline deadline) {
  std::string name = host;
  if (name.size() >= 2 && name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
  if (name.empty()) return Status(StatusCode::invalid_argument, "the host name to resolve is empty");
  std::vector<SocketAddress> addresses;
  if (look_up_with_flags(name.c_str(), AI_NUMERICHOST, addresses) == 0) {
    set_port(addresses, port);
    return addresses;
  }
  const auto shared = begin_or_join(look_up, name);
  if (!shared.ok()) return shared.status();
  std::unique_lock lock((*shared)->mutex);
  const auto done = [&] { return (*shared)->result.has_value(); };
  if (!(*shared)->done.wait_until(lock, deadline.when(), done)) {
    return Status(
        StatusCode::timed_out,
        fmt::format("cannot resolve host '{}': name servers did not answer in time; check /etc/resolv.conf, or "
                    "use an address",
                    host));
  }
  Addresses result = *(*shared)->result;
  if (!result.ok()) return result;
  addresses = *std::move(result);
  set_port(addresses, port);
  return addresses;
}

}  // namespace lockstep
