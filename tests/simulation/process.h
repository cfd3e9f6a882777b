// The simulated machines and the processes on them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/process_state.h"
#include "simulation/scheduler.h"

namespace lockstep::simulation {

class Network;
class Simulation;

// Something that a descriptor refers to. Ready for what poll(2) calls POLLIN, POLLOUT, POLLERR and POLLHUP.
class Object {
 public:
  enum class Kind : std::uint8_t { connection, listener, stream, datagram, file, event_counter, epoll, process };
  explicit Object(Kind kind) : kind(kind) {}
  virtual ~Object() = default;
  virtual short ready() const { return 0; }
  // The last descriptor was closed, by the process or by its end.
  virtual void closed() {}
  // Ends the sleep that `fiber` is about to begin at the next change.
  void wake_at_change(Fiber* fiber);
  void changed();
  const Kind kind;

 private:
  struct Waiter {
    Fiber* fiber;
    std::uint64_t sleep;  // its number. Another one is not ended
  };
  std::vector<Waiter> waiters_;
};

// A file's content.
struct Inode {
  std::string data;
};

struct Host {
  std::string name;
  int index = 0;
  std::uint32_t address = 0;  // IPv4, in host order
  std::string address_text() const;
  bool disk_full = false;
  std::map<std::string, std::shared_ptr<Inode>> files = {};
  std::map<std::uint16_t, Object*> listeners = {};
};

class Process {
 public:
  Process(Simulation& simulation, Host& host, std::string name, int pid,
          std::map<std::string, std::string> environment);

  Host& host() const { return host_; }
  const std::string& name() const { return name_; }
  int pid() const { return pid_; }
  ProcessIdentity identity() const { return {.pid = pid_, .started = 7 * pid_}; }
  bool alive() const { return alive_; }
  bool stopped() const { return stopped_; }
  const char* getenv(const std::string& name) const;

  // SIGKILL: no destructor runs; the kernel closes the descriptors. Also how a process ends by itself.
  void kill(const std::string& reason);
  // SIGSTOP and SIGCONT.
  void stop();
  void resume();
  // Stops or kills the process when it makes its `operations`-th system call from now.
  void at_operation(std::int64_t operations, std::function<void()> action);
  void forget_trigger() { on_trigger_ = nullptr; }
  // Called at the start of every system call.
  void count_operation();
  void defer(Fiber* fiber, std::uint64_t sleep) { deferred_.emplace_back(fiber, sleep); }

  Fiber* start_thread(std::function<void()> body);

  // This process' clock, which drifts.
  Time clock() const;
  // When that clock shows `time`.
  Time when(Time time) const;
  void set_clock(double rate, Time offset) { rate_ = rate, offset_ = offset; }

  int add(std::shared_ptr<Object> object);
  Object* find(int fd) const;
  bool close(int fd);

  // Called when the process has ended.
  std::vector<std::function<void()>> at_end;

 private:
  Simulation& simulation_;
  Host& host_;
  const std::string name_;
  const int pid_;
  const std::map<std::string, std::string> environment_;
  bool alive_ = true;
  bool stopped_ = false;
  double rate_ = 1;
  Time offset_ = 0;
  std::int64_t operations_ = 0;
  std::int64_t trigger_ = 0;
  std::function<void()> on_trigger_;
  std::vector<Fiber*> fibers_;
  std::vector<std::pair<Fiber*, std::uint64_t>> deferred_;
  std::vector<std::shared_ptr<Object>> descriptors_;  // those that were closed are null, and not used again
};

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed, bool verbose = false);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // The one that runs; there is at most one.
  static Simulation& current();
  // The process of the running fiber; null outside of fibers: system calls are real there.
  static Process* process();

  Scheduler* scheduler() { return &scheduler_; }
  Random& random() { return scheduler_.random; }
  Time now() const { return scheduler_.now(); }
  Network& network() { return *network_; }
  Host& add_host(const std::string& name);
  Host& host(int index) { return *hosts_.at(static_cast<std::size_t>(index)); }
  int hosts() const { return static_cast<int>(hosts_.size()); }
  // The process runs `body` and ends when it returns.
  Process& start(Host& host, const std::string& name, std::map<std::string, std::string> environment,
                 std::function<void()> body);
  Process* find_process(int pid) const;
  const std::vector<std::unique_ptr<Process>>& processes() const { return processes_; }

  // A line of the history's transcript.
  void log(const std::string& line);
  // Fibers that wait for a mutex or a condition variable, by its address.
  std::unordered_map<const void*, std::vector<Fiber*>> lock_waiters;

 private:
  Scheduler scheduler_;
  const bool verbose_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::unique_ptr<Network> network_;
  int next_pid_ = 1000;
};

}  // namespace lockstep::simulation
