// A crowd of strangers: connections to all ports on which a job listens, from processes that do not have its secret.
// Some stay idle, some send one byte now and then, and some send garbage.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace lockstep::testing {

// The TCP ports of 127.0.0.1 on which a process listens.
std::set<std::uint16_t> listening_ports(pid_t pid);
// How many descriptors a process has open; 0 if it has ended.
std::size_t open_descriptors(pid_t pid);

// Its thread makes connections in turn to all ports, until stop() or until it has made as many as it should.
class Crowd {
 public:
  struct Options {
    std::size_t connections = 20'000;  // in all; at most `at_once` at a time
    std::size_t at_once = 2'000;
    double per_second = 1'000;
  };
  explicit Crowd(Options options);
  ~Crowd() { stop(); }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  void attack(const std::set<std::uint16_t>& ports);
  // Closes all connections and returns how many there were.
  std::size_t stop();
  bool finished() const { return made_ >= options_.connections; }
  std::size_t made() const { return made_; }

 private:
  enum class Kind { idle, slow, garbage };
  struct Stranger {
    UniqueFd fd;
    Kind kind = Kind::idle;
    std::size_t sent = 0;
  };
  void run();
  void connect(std::uint16_t port);
  void continue_slow_ones();

  const Options options_;
  std::mutex mutex_;
  std::vector<std::uint16_t> ports_;  // guarded by mutex_
  std::atomic<std::size_t> made_{0};
  std::atomic<bool> stopping_{false};
  // Of the thread.
  std::vector<Stranger> strangers_;  // by age
  std::thread thread_;               // last: it uses the others
};

}  // namespace lockstep::testing
