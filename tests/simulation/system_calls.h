// The system calls and thread functions of a simulated process. The simulation links the object files of the product as
// they are, with the linker's --wrap (CMakeLists.txt): a call of poll() in them arrives at __wrap_poll(), in one of
// network_calls.cpp, file_calls.cpp and thread_calls.cpp. Outside of simulated processes, each does what it always
// does. What is not in wrapped_symbols.txt (memory, strings, time zones) neither blocks nor depends on anything but its
// arguments.
//
// This header has what the three files share.
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>

#include "simulation/network.h"

namespace lockstep::simulation {

// The process that makes this system call; null if the call is a real one.
inline Process* begin_call() {
  Process* const process = Simulation::process();
  if (process != nullptr) process->count_operation();
  return process;
}

inline int fail(int error) {
  errno = error;
  return -1;
}

template <typename T>
T* find(Process* process, int fd) {
  Object* const object = process->find(fd);
  return object != nullptr && object->kind == T::kKind ? static_cast<T*>(object) : nullptr;
}

inline Scheduler& scheduler() { return *Simulation::current().scheduler(); }

// What a descriptor of socket(2) refers to, before and after it is known what kind of socket it is.
class StreamSocket final : public Object {
 public:
  static constexpr Kind kKind = Kind::stream;
  StreamSocket() : Object(kKind) {}
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

}  // namespace lockstep::simulation
