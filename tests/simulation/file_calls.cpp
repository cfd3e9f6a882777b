// Files and processes.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "simulation/files.h"
#include "simulation/system_calls.h"

using namespace lockstep::simulation;

namespace {

// What opendir(3) returns.
struct Listing {
  std::vector<std::string> names;
  dirent entry{};
};

}  // namespace

extern "C" {

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

}  // extern "C"
