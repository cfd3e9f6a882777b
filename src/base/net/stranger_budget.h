// Which connections a listener keeps that have not proved yet that they belong to the job.
//
// Any process that can reach a listener can open connections to it, so each listener has a budget for them: a share of
// the descriptors that the process may open, half of that share for one source address, and a share for all listeners
// of the process together. If a new connection exceeds it, another one is closed. Connections that have sent nothing
// that needs the secret (`silent` ones) are closed first: the oldest of the address that has most of them. Legitimate
// peers send their first message at once, so a flood of idle or slow connections evicts itself.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "base/net/socket.h"

namespace lockstep {

// Used by one thread; several listeners of a process may be used by different threads. The owner closes connections.
class StrangerBudget {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    std::size_t listener = 0;  // for one listener
    std::size_t address = 0;   // for one source address at one listener
    std::size_t process = 0;   // for all listeners; each may have kAlways even if this is exceeded
  };
  // For a process that may open this many descriptors.
  static Limits limits_for(std::size_t descriptors);
  // By RLIMIT_NOFILE, and at most `most` for the listener.
  static Limits limits_of_process(std::size_t most);
  static constexpr std::size_t kAlways = 8;

  // A connection that has sent its first message has this long for the rest before it may be evicted.
  static constexpr std::chrono::seconds kFairTime{2};

  explicit StrangerBudget(Limits limits) : limits_(limits) {}
  ~StrangerBudget();
  StrangerBudget(const StrangerBudget&) = delete;
  StrangerBudget& operator=(const StrangerBudget&) = delete;

  // Whether to accept now. If not, connections wait in the backlog until one is removed or until retry_at().
  bool may_accept(Clock::time_point now) const;
  Clock::time_point retry_at() const;

  void add(int fd, const SocketAddress& from, Clock::time_point now);
  // It has sent a first message that needs the secret.
  void has_spoken(int fd);
  // It is authenticated or closed. False: it was not in the budget.
  bool remove(int fd);

  // After add(newest): the connection to evict, if the budget is exceeded. Before the owner closes it, it checks once
  // more whether it has sent something meanwhile.
  std::optional<int> excess(int newest, Clock::time_point now) const;
  // The silent connection to evict if the process has no descriptors left.
  std::optional<int> least_wanted() const;

  std::size_t size() const { return entries_.size(); }
  bool is_silent(int fd) const;
  struct Oldest {
    int fd;
    Clock::time_point since;
  };
  std::optional<Oldest> oldest() const;

 private:
  struct Entry {
    int fd;
    Clock::time_point since;
    bool silent;
    std::map<std::string, std::size_t>::iterator source;
  };
  using Entries = std::list<Entry>;
  bool full() const;
  const Entry* oldest_that_spoke() const;
  void forget_source(Entry& entry);

  const Limits limits_;
  Entries entries_;  // by age
  std::map<int, Entries::iterator> by_fd_;
  std::map<std::string, std::size_t> silent_by_source_;
};

}  // namespace lockstep
