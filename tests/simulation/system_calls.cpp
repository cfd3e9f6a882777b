// The system calls and thread functions of a simulated process. The simulation links the object files of the product as
// they are, with the linker's --wrap (CMakeLists.txt): a call of poll() in them arrives at __wrap_poll() here. Outside of
// simulated processes, each does what it always does. What is not in this file (memory, strings, time zones) neither
// blocks nor depends on anything but its arguments.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "simulation/files.h"
#include "simulation/network.h"

using namespace lockstep::simulation;

namespace {

// The process that makes this system call; null if the call is a real one.
Process* begin_call() {
  Process* const process = Simulation::process();
  if (process != nullptr) process->count_operation();
  return process;
}

int fail(int error) {
  errno = error;
  return -1;
}

template <typename Kind>
Kind* find(Process* process, int fd) {
  return dynamic_cast<Kind*>(process->find(fd));
}

Scheduler& scheduler() { return *Simulation::current().scheduler(); }

auto& waiting() { return Simulation::current().lock_waiters; }

void wake_all(const void* what) {
  const auto found = waiting().find(what);
  if (found == waiting().end()) return;
  const std::vector<Fiber*> fibers = std::move(found->second);
  waiting().erase(found);
  for (Fiber* const fiber : fibers) {
    if (!fiber->done) scheduler().wake(fiber);
  }
}

bool wait_for(const void* what, Time deadline) {
  Fiber* const self = scheduler().current();
  waiting()[what].push_back(self);
  const bool woken = scheduler().sleep_until(deadline);
  if (const auto found = waiting().find(what); found != waiting().end()) std::erase(found->second, self);
  return woken;
}

Time to_time(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

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
  std::uint32_t address = 0;
};

// Descriptors are created before their kind is known, so they refer to this.
class StreamSocket final : public Object {
 public:
  std::shared_ptr<Socket> socket;
  std::shared_ptr<Listener> listener;
  std::uint32_t address = 0;
  std::uint16_t port = 0;
  const Object* target() const {
    return socket ? static_cast<const Object*>(socket.get()) : static_cast<const Object*>(listener.get());
  }
  short ready() const override { return target() == nullptr ? 0 : target()->ready(); }
  void closed() override {
    if (socket) socket->closed();
    if (listener) listener->closed();
  }
};

// What opendir(3) returns.
struct Listing {
  std::vector<std::string> names;
  dirent entry{};
};

// What a fiber waits on: changes are reported there.
Object* waitable(Object* object) {
  auto* const stream = dynamic_cast<StreamSocket*>(object);
  if (stream == nullptr) return object;
  if (stream->socket) return stream->socket.get();
  return stream->listener ? static_cast<Object*>(stream->listener.get()) : object;
}

// Sleeps until one of the objects changes or the deadline passes.
bool wait_for_change(const std::vector<Object*>& objects, Time deadline) {
  Fiber* const self = scheduler().current();
  for (Object* const object : objects) waitable(object)->waiters.push_back(self);
  const bool woken = scheduler().sleep_until(deadline);
  for (Object* const object : objects) std::erase(waitable(object)->waiters, self);
  return woken;
}


Fiber* fiber_of(std::thread* thread) { return *reinterpret_cast<Fiber**>(thread); }

}  // namespace

extern "C" {

// --- sockets

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

// --- waiting

int __real_poll(pollfd* entries, nfds_t count, int timeout);
int __wrap_poll(pollfd* entries, nfds_t count, int timeout) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_poll(entries, count, timeout);
  const Time deadline = deadline_after_ms(process, timeout);
  while (true) {
    int ready = 0;
    std::vector<Object*> objects;
    for (nfds_t i = 0; i < count; ++i) {
      entries[i].revents = 0;
      if (entries[i].fd < 0) continue;
      Object* const object = process->find(entries[i].fd);
      if (object == nullptr) {
        entries[i].revents = POLLNVAL;
      } else {
        entries[i].revents = static_cast<short>(object->ready() & (entries[i].events | POLLERR | POLLHUP));
        objects.push_back(object);
      }
      if (entries[i].revents != 0) ++ready;
    }
    if (ready > 0 || deadline <= scheduler().now()) return ready;
    wait_for_change(objects, deadline);
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
    std::vector<Object*> objects = {object};
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
      objects.push_back(watched);
      ++entry;
    }
    if (ready > 0 || deadline <= scheduler().now()) return ready;
    wait_for_change(objects, deadline);
  }
}

int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags) {
  Process* const process = begin_call();
  return process == nullptr ? __real_eventfd(count, flags) : process->add(std::make_shared<EventCounter>());
}

int __real_nanosleep(const timespec* time, timespec* left);
int __wrap_nanosleep(const timespec* time, timespec* left) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_nanosleep(time, left);
  const Time deadline = process->when(process->clock() + to_time(*time));
  while (scheduler().now() < deadline) scheduler().sleep_until(deadline);
  return 0;
}

// --- files

int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  Process* const process = begin_call();
  if (process == nullptr) return __real_open(path, flags, mode);
  Host& host = process->host();
  int pid = 0;
  if (std::sscanf(path, "/proc/%d/stat", &pid) == 1) {
    const Process* const asked = Simulation::current().find_process(pid);
    if (asked == nullptr || !asked->alive() || &asked->host() != &host) return fail(ENOENT);
    auto inode = std::make_shared<Inode>();
    inode->data = fmt::format("{} (rank) {} 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 {} 0\n", pid,
                              asked->stopped() ? 'T' : 'S', asked->identity().started);
    return process->add(std::make_shared<File>(host, std::move(inode)));
  }
  if (std::strcmp(path, "/proc/sys/kernel/random/boot_id") == 0) {
    auto inode = std::make_shared<Inode>();
    inode->data = host.name + "\n";
    return process->add(std::make_shared<File>(host, std::move(inode)));
  }
  auto found = host.files.find(path);
  if (found == host.files.end()) {
    if ((flags & O_CREAT) == 0) return fail(ENOENT);
    if (host.disk_full) return fail(ENOSPC);
    found = host.files.emplace(path, std::make_shared<Inode>()).first;
  }
  if ((flags & O_TRUNC) != 0) found->second->data.clear();
  return process->add(std::make_shared<File>(host, found->second));
}

ssize_t __real_read(int fd, void* data, size_t bytes);
ssize_t __wrap_read(int fd, void* data, size_t bytes) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_read(fd, data, bytes);
  if (auto* const file = find<File>(process, fd)) return file->read(data, bytes);
  if (auto* const counter = find<EventCounter>(process, fd)) {
    if (counter->count == 0) return fail(EAGAIN);
    std::memcpy(data, &counter->count, sizeof(counter->count));
    counter->count = 0;
    return sizeof(counter->count);
  }
  auto* const socket = find<StreamSocket>(process, fd);
  return socket == nullptr || !socket->socket ? fail(EBADF) : socket->socket->receive(data, bytes);
}

ssize_t __real_write(int fd, const void* data, size_t bytes);
ssize_t __wrap_write(int fd, const void* data, size_t bytes) {
  if (fd <= STDERR_FILENO) return __real_write(fd, data, bytes);
  Process* const process = begin_call();
  if (process == nullptr) return __real_write(fd, data, bytes);
  if (auto* const file = find<File>(process, fd)) return file->write(data, bytes);
  if (auto* const counter = find<EventCounter>(process, fd)) {
    std::uint64_t added = 0;
    std::memcpy(&added, data, sizeof(added));
    counter->count += added;
    counter->changed();
    return sizeof(added);
  }
  auto* const socket = find<StreamSocket>(process, fd);
  return socket == nullptr || !socket->socket ? fail(EBADF) : socket->socket->send(data, bytes);
}

int __real_close(int fd);
int __wrap_close(int fd) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_close(fd);
  return process->close(fd) ? 0 : fail(EBADF);
}

int __real_link(const char* from, const char* to);
int __wrap_link(const char* from, const char* to) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_link(from, to);
  auto& files = process->host().files;
  const auto found = files.find(from);
  if (found == files.end()) return fail(ENOENT);
  return files.try_emplace(to, found->second).second ? 0 : fail(EEXIST);
}

DIR* __real_opendir(const char* path);
DIR* __wrap_opendir(const char* path) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_opendir(path);
  auto* const listing = new Listing;
  for (const auto& [name, inode] : process->host().files) {
    if (name.starts_with(path)) listing->names.push_back(name.substr(std::strlen(path)));
  }
  return reinterpret_cast<DIR*>(listing);
}

dirent* __real_readdir(DIR* folder);
dirent* __wrap_readdir(DIR* folder) {
  if (Simulation::process() == nullptr) return __real_readdir(folder);
  auto* const listing = reinterpret_cast<Listing*>(folder);
  if (listing->names.empty()) return nullptr;
  listing->names.back().copy(listing->entry.d_name, sizeof(listing->entry.d_name) - 1);
  listing->entry.d_name[listing->names.back().size()] = '\0';
  listing->names.pop_back();
  return &listing->entry;
}

int __real_closedir(DIR* folder);
int __wrap_closedir(DIR* folder) {
  if (Simulation::process() == nullptr) return __real_closedir(folder);
  delete reinterpret_cast<Listing*>(folder);
  return 0;
}

int __real_unlink(const char* path);
int __wrap_unlink(const char* path) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_unlink(path);
  return process->host().files.erase(path) > 0 ? 0 : fail(ENOENT);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return Simulation::process() == nullptr ? __real_fcntl(fd, command, argument) : 0;
}

// --- processes

pid_t __real_getpid();
pid_t __wrap_getpid() {
  const Process* const process = Simulation::process();
  return process == nullptr ? __real_getpid() : process->pid();
}

int __real_kill(pid_t pid, int signal);
int __wrap_kill(pid_t pid, int signal) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_kill(pid, signal);
  Process* const other = Simulation::current().find_process(pid);
  if (other == nullptr || !other->alive() || &other->host() != &process->host()) return fail(ESRCH);
  if (signal == SIGKILL) other->kill(fmt::format("killed by {}", process->name()));
  return 0;
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  Process* const process = Simulation::process();
  if (process == nullptr) {
    return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
  }
  process->count_operation();
  if (number == SYS_pidfd_open) {
    Process* const other = Simulation::current().find_process(static_cast<int>(arguments[0]));
    if (other == nullptr || !other->alive() || &other->host() != &process->host()) return fail(ESRCH);
    auto handle = std::make_shared<ProcessHandle>(*other);
    other->at_end.push_back([handle] { handle->changed(); });
    return process->add(std::move(handle));
  }
  if (number == SYS_pidfd_send_signal) {
    const auto* const handle = find<ProcessHandle>(process, static_cast<int>(arguments[0]));
    if (handle == nullptr || !handle->process().alive()) return fail(ESRCH);
    if (arguments[1] == SIGKILL) handle->process().kill(fmt::format("killed by {}", process->name()));
    return 0;
  }
  return fail(ENOSYS);
}

ssize_t __real_readlink(const char* path, char* target, size_t bytes);
ssize_t __wrap_readlink(const char* path, char* target, size_t bytes) {
  if (Simulation::process() == nullptr) return __real_readlink(path, target, bytes);
  const std::string_view text = "pid:[1]";
  return static_cast<ssize_t>(text.copy(target, bytes));
}

char* __real_getenv(const char* name);
char* __wrap_getenv(const char* name) {
  const Process* const process = Simulation::process();
  return process == nullptr ? __real_getenv(name) : const_cast<char*>(process->getenv(name));
}

int __real_gethostname(char* name, size_t length);
int __wrap_gethostname(char* name, size_t length) {
  const Process* const process = Simulation::process();
  if (process == nullptr) return __real_gethostname(name, length);
  std::strncpy(name, process->host().name.c_str(), length);
  return 0;
}

ssize_t __real_getrandom(void* data, size_t bytes, unsigned flags);
ssize_t __wrap_getrandom(void* data, size_t bytes, unsigned flags) {
  if (Simulation::process() == nullptr) return __real_getrandom(data, bytes, flags);
  for (std::size_t i = 0; i < bytes; ++i) {
    static_cast<unsigned char*>(data)[i] = static_cast<unsigned char>(Simulation::current().random().next());
  }
  return static_cast<ssize_t>(bytes);
}

// --- threads and locks

int __real_pthread_mutex_lock(pthread_mutex_t* mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  Process* const process = Simulation::process();
  if (process == nullptr) return __real_pthread_mutex_lock(mutex);
  while (mutex->__data.__lock != 0) wait_for(mutex, kNever);
  mutex->__data.__lock = 1;
  return 0;
}

int __real_pthread_mutex_unlock(pthread_mutex_t* mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t* mutex) {
  if (Simulation::process() == nullptr) return __real_pthread_mutex_unlock(mutex);
  mutex->__data.__lock = 0;
  wake_all(mutex);
  return 0;
}

int __real_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const timespec* until);
int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const timespec* until) {
  Process* const process = Simulation::process();
  if (process == nullptr) return __real_pthread_cond_clockwait(condition, mutex, clock, until);
  __wrap_pthread_mutex_unlock(mutex);
  const bool woken = wait_for(condition, process->when(to_time(*until)));
  __wrap_pthread_mutex_lock(mutex);
  return woken ? 0 : ETIMEDOUT;
}

void __real__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* condition,
                                                                      std::unique_lock<std::mutex>& lock);
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* condition,
                                                                      std::unique_lock<std::mutex>& lock) {
  if (Simulation::process() == nullptr) {
    return __real__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(condition, lock);
  }
  __wrap_pthread_mutex_unlock(lock.mutex()->native_handle());
  wait_for(condition, kNever);
  __wrap_pthread_mutex_lock(lock.mutex()->native_handle());
}

void __real__ZNSt18condition_variable10notify_allEv(std::condition_variable* condition);
void __wrap__ZNSt18condition_variable10notify_allEv(std::condition_variable* condition) {
  if (Simulation::process() == nullptr) return __real__ZNSt18condition_variable10notify_allEv(condition);
  wake_all(condition);
}

// Waking more than one is always allowed: waiters check their condition.
void __real__ZNSt18condition_variable10notify_oneEv(std::condition_variable* condition);
void __wrap__ZNSt18condition_variable10notify_oneEv(std::condition_variable* condition) {
  if (Simulation::process() == nullptr) return __real__ZNSt18condition_variable10notify_oneEv(condition);
  wake_all(condition);
}

void __real__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
    std::thread* thread, std::unique_ptr<std::thread::_State>* state, void (*depend)());
void __wrap__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
    std::thread* thread, std::unique_ptr<std::thread::_State>* state, void (*depend)()) {
  Process* const process = begin_call();
  if (process == nullptr) {
    return __real__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(thread, state,
                                                                                                       depend);
  }
  const std::shared_ptr<std::thread::_State> body(state->release());
  Fiber* const fiber = process->start_thread([body] { body->_M_run(); });
  std::memcpy(static_cast<void*>(thread), &fiber, sizeof(fiber));
}

void __real__ZNSt6thread4joinEv(std::thread* thread);
void __wrap__ZNSt6thread4joinEv(std::thread* thread) {
  if (Simulation::process() == nullptr) return __real__ZNSt6thread4joinEv(thread);
  Fiber* const fiber = fiber_of(thread);
  while (!fiber->done) {
    fiber->joiners.push_back(scheduler().current());
    scheduler().sleep_until(kNever);
  }
  std::memset(static_cast<void*>(thread), 0, sizeof(*thread));
}

// --- time

std::chrono::steady_clock::time_point __real__ZNSt6chrono3_V212steady_clock3nowEv();
std::chrono::steady_clock::time_point __wrap__ZNSt6chrono3_V212steady_clock3nowEv() {
  const Process* const process = Simulation::process();
  if (process == nullptr) return __real__ZNSt6chrono3_V212steady_clock3nowEv();
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(process->clock()));
}

// --- the log goes to the transcript

void __real__ZN8lockstep8log_lineENS_8LogLevelESt17basic_string_viewIcSt11char_traitsIcEE(lockstep::LogLevel level,
                                                                                         std::string_view line);
void __wrap__ZN8lockstep8log_lineENS_8LogLevelESt17basic_string_viewIcSt11char_traitsIcEE(lockstep::LogLevel level,
                                                                                         std::string_view line) {
  if (Simulation::process() == nullptr) {
    return __real__ZN8lockstep8log_lineENS_8LogLevelESt17basic_string_viewIcSt11char_traitsIcEE(level, line);
  }
  Simulation::current().log(std::string(line));
}

}  // extern "C"
