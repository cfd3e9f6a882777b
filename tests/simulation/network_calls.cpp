// Sockets, and waiting for descriptors.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "simulation/files.h"
#include "simulation/system_calls.h"

using namespace lockstep::simulation;

namespace {

Time deadline_after_ms(Process* process, int timeout) {
  return timeout < 0 ? kNever : process->when(process->clock() + timeout * kMillisecond);
}

sockaddr_in to_sockaddr(std::uint32_t address, std::uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_addr.s_addr = htonl(address);
  result.sin_port = htons(port);
  return result;
}

int give_address(sockaddr* to, socklen_t* length, std::uint32_t address, std::uint16_t port) {
  const sockaddr_in from = to_sockaddr(address, port);
  std::memcpy(to, &from, std::min<std::size_t>(*length, sizeof(from)));
  *length = sizeof(from);
  return 0;
}

class DatagramSocket final : public Object {
 public:
  static constexpr Kind kKind = Kind::datagram;
  DatagramSocket() : Object(kKind) {}
  std::uint32_t address = 0;
};

// What a fiber waits on: changes are reported there.
Object* waitable(Object* object) {
  if (object->kind != Object::Kind::stream) return object;
  const auto* const stream = static_cast<StreamSocket*>(object);
  if (stream->socket) return stream->socket.get();
  return stream->listener ? static_cast<Object*>(stream->listener.get()) : object;
}

// The running fiber is about to sleep until one of several objects changes.
void wake_at_change(Object* object) { waitable(object)->wake_at_change(scheduler().current()); }

}  // namespace

extern "C" {

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_socket(domain, type, protocol);
  if (domain != AF_INET) return fail(EAFNOSUPPORT);
  if ((type & 0xF) == SOCK_DGRAM) return process->add(std::make_shared<DatagramSocket>());
  return process->add(std::make_shared<StreamSocket>());
}

int __real_bind(int fd, const sockaddr* address, socklen_t length);
int __wrap_bind(int fd, const sockaddr* address, socklen_t length) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_bind(fd, address, length);
  auto* const socket = find<StreamSocket>(process, fd);
  if (socket == nullptr) return fail(EBADF);
  const auto* const in = reinterpret_cast<const sockaddr_in*>(address);
  socket->address = ntohl(in->sin_addr.s_addr);
  socket->port = ntohs(in->sin_port);
  const bool is_any = socket->address == INADDR_ANY, is_loopback = socket->address >> 24 == 127;
  if (!is_any && !is_loopback && socket->address != process->host().address) return fail(EADDRNOTAVAIL);
  if (socket->port == 0) socket->port = Simulation::current().network().free_port(process->host());
  if (process->host().listeners.contains(socket->port)) return fail(EADDRINUSE);
  return 0;
}

int __real_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_listen(fd, backlog);
  auto* const socket = find<StreamSocket>(process, fd);
  if (socket == nullptr) return fail(EBADF);
  if (process->host().listeners.contains(socket->port)) return fail(EADDRINUSE);
  socket->listener = std::make_shared<Listener>(process->host(), socket->port);
  return 0;
}

int __real_accept4(int fd, sockaddr* address, socklen_t* length, int flags);
int __wrap_accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_accept4(fd, address, length, flags);
  auto* const socket = find<StreamSocket>(process, fd);
  if (socket == nullptr || !socket->listener) return fail(EBADF);
  if (socket->listener->backlog.empty()) return fail(EAGAIN);
  auto accepted = std::make_shared<StreamSocket>();
  accepted->socket = socket->listener->backlog.front();
  socket->listener->backlog.pop_front();
  return process->add(std::move(accepted));
}

int __real_connect(int fd, const sockaddr* address, socklen_t length);
int __wrap_connect(int fd, const sockaddr* address, socklen_t length) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_connect(fd, address, length);
  const auto* const in = reinterpret_cast<const sockaddr_in*>(address);
  const std::uint32_t to = ntohl(in->sin_addr.s_addr);
  if (auto* const datagram = find<DatagramSocket>(process, fd)) {
    datagram->address = (to >> 24) == 127 ? to : process->host().address;
    return 0;
  }
  auto* const socket = find<StreamSocket>(process, fd);
  if (socket == nullptr) return fail(EBADF);
  socket->socket = std::make_shared<Socket>(Simulation::current().network(), process->host());
  Simulation::current().network().add(socket->socket);
  return socket->socket->connect(to, ntohs(in->sin_port));
}

ssize_t __real_send(int fd, const void* data, size_t bytes, int flags);
ssize_t __wrap_send(int fd, const void* data, size_t bytes, int flags) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_send(fd, data, bytes, flags);
  auto* const socket = find<StreamSocket>(process, fd);
  return socket == nullptr || !socket->socket ? fail(EBADF) : socket->socket->send(data, bytes);
}

ssize_t __real_recv(int fd, void* data, size_t bytes, int flags);
ssize_t __wrap_recv(int fd, void* data, size_t bytes, int flags) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_recv(fd, data, bytes, flags);
  auto* const socket = find<StreamSocket>(process, fd);
  return socket == nullptr || !socket->socket ? fail(EBADF) : socket->socket->receive(data, bytes);
}

int __real_getsockname(int fd, sockaddr* address, socklen_t* length);
int __wrap_getsockname(int fd, sockaddr* address, socklen_t* length) {
  Process* const process = Simulation::process();
  if (process == nullptr) return __real_getsockname(fd, address, length);
  if (const auto* const datagram = find<DatagramSocket>(process, fd)) {
    return give_address(address, length, datagram->address, 0);
  }
  const auto* const socket = find<StreamSocket>(process, fd);
  if (socket == nullptr) return fail(EBADF);
  return socket->socket ? give_address(address, length, socket->socket->local_address, socket->socket->local_port)
                        : give_address(address, length, socket->address, socket->port);
}

int __real_getpeername(int fd, sockaddr* address, socklen_t* length);
int __wrap_getpeername(int fd, sockaddr* address, socklen_t* length) {
  Process* const process = Simulation::process();
  if (process == nullptr) return __real_getpeername(fd, address, length);
  const auto* const socket = find<StreamSocket>(process, fd);
  if (socket == nullptr || !socket->socket || !socket->socket->connected) return fail(ENOTCONN);
  return give_address(address, length, socket->socket->remote_address, socket->socket->remote_port);
}

int __real_getsockopt(int fd, int level, int name, void* value, socklen_t* length);
int __wrap_getsockopt(int fd, int level, int name, void* value, socklen_t* length) {
  Process* const process = Simulation::process();
  if (process == nullptr) return __real_getsockopt(fd, level, name, value, length);
  auto* const socket = find<StreamSocket>(process, fd);
  if (socket == nullptr) return fail(EBADF);
  int result = 0;
  if (level == SOL_SOCKET && name == SO_ERROR && socket->socket) result = socket->socket->take_error();
  if (level == SOL_SOCKET && name == SO_ACCEPTCONN) result = socket->listener ? 1 : 0;
  std::memcpy(value, &result, sizeof(result));
  return 0;
}

int __real_setsockopt(int fd, int level, int name, const void* value, socklen_t length);
int __wrap_setsockopt(int fd, int level, int name, const void* value, socklen_t length) {
  Process* const process = Simulation::process();
  if (process == nullptr) return __real_setsockopt(fd, level, name, value, length);
  auto* const socket = find<StreamSocket>(process, fd);
  if (socket != nullptr && socket->socket && level == SOL_SOCKET && name == SO_KEEPALIVE) {
    socket->socket->keep_alive = true;
  }
  return 0;
}

int __real_poll(pollfd* entries, nfds_t count, int timeout);
int __wrap_poll(pollfd* entries, nfds_t count, int timeout) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_poll(entries, count, timeout);
  const Time deadline = deadline_after_ms(process, timeout);
  while (true) {
    int ready = 0;
    for (nfds_t i = 0; i < count; ++i) {
      entries[i].revents = 0;
      if (entries[i].fd < 0) continue;
      Object* const object = process->find(entries[i].fd);
      if (object == nullptr) {
        entries[i].revents = POLLNVAL;
      } else {
        entries[i].revents = static_cast<short>(object->ready() & (entries[i].events | POLLERR | POLLHUP));
      }
      if (entries[i].revents != 0) ++ready;
    }
    if (ready > 0 || deadline <= scheduler().now()) return ready;
    for (nfds_t i = 0; i < count; ++i) {
      if (Object* const object = process->find(entries[i].fd)) wake_at_change(object);
    }
    scheduler().sleep_until(deadline);
  }
}

int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags) {
  Process* const process = begin_call();
  return process == nullptr ? __real_epoll_create1(flags) : process->add(std::make_shared<Epoll>());
}

int __real_epoll_ctl(int epoll, int operation, int fd, epoll_event* event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_epoll_ctl(epoll, operation, fd, event);
  auto* const object = find<Epoll>(process, epoll);
  if (object == nullptr) return fail(EBADF);
  if (operation == EPOLL_CTL_DEL) {
    object->entries.erase(fd);
  } else {
    object->entries[fd] = *event;
  }
  object->changed();
  return 0;
}

int __real_epoll_wait(int epoll, epoll_event* events, int count, int timeout);
int __wrap_epoll_wait(int epoll, epoll_event* events, int count, int timeout) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_epoll_wait(epoll, events, count, timeout);
  auto* const object = find<Epoll>(process, epoll);
  if (object == nullptr) return fail(EBADF);
  const Time deadline = deadline_after_ms(process, timeout);
  while (true) {
    int ready = 0;
    for (auto entry = object->entries.begin(); entry != object->entries.end();) {
      Object* const watched = process->find(entry->first);
      if (watched == nullptr) {  // a closed descriptor leaves the set
        entry = object->entries.erase(entry);
        continue;
      }
      const auto state = static_cast<std::uint32_t>(watched->ready()) & (entry->second.events | EPOLLERR | EPOLLHUP);
      if (state != 0 && ready < count) {
        events[ready] = entry->second;
        events[ready++].events = state;
      }
      ++entry;
    }
    if (ready > 0 || deadline <= scheduler().now()) return ready;
    wake_at_change(object);
    for (const auto& [watched, event] : object->entries) wake_at_change(process->find(watched));
    scheduler().sleep_until(deadline);
  }
}

int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags) {
  Process* const process = begin_call();
  return process == nullptr ? __real_eventfd(count, flags) : process->add(std::make_shared<EventCounter>());
}

}  // extern "C"
