// Virtual time and simulated threads.
//
// Each simulated thread is a fiber: it has its own stack, and all fibers run on one thread of the real process, one at
// a time. A fiber runs until it blocks. Time stands still while a fiber computes, except that each system call costs a
// little; when all fibers are blocked, it jumps to the next event. So a seed determines every interleaving, and an hour
// of virtual time costs as much as the system calls in it.
#pragma once

#include <boost/context/detail/fcontext.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simulation/random.h"

namespace lockstep::simulation {

using Time = std::int64_t;  // nanoseconds since the start of the history
constexpr Time kMicrosecond = 1000;
constexpr Time kMillisecond = 1000 * kMicrosecond;
constexpr Time kSecond = 1000 * kMillisecond;
constexpr Time kNever = INT64_MAX;

class Process;

struct Fiber {
  std::uint64_t id = 0;
  Process* process = nullptr;
  std::function<void()> body;
  boost::context::detail::fcontext_t context = nullptr;  // where it was left
  char* stack = nullptr;
  std::uint64_t sleep = 0;  // counts its sleeps: an event that ends another one is void
  bool woken = false;       // whether the last sleep was ended by wake()
  Time deadline = kNever;   // of the present sleep
  Time timer = kNever;      // when its timer rings, at the deadline or before
  bool done = false;
  // True while the sleep with this number lasts.
  bool sleeps(std::uint64_t number) const { return !done && sleep == number; }
  int saved_errno = 0;
  void* exceptions[2] = {};  // the C++ runtime's record of exceptions in flight; per thread, so swapped with the fiber
  std::vector<Fiber*> joiners;
};

class Scheduler {
 public:
  explicit Scheduler(std::uint64_t seed) : random(seed) {}
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  Time now() const { return now_; }
  Random random;

  // Runs `action` at `when`, outside of all fibers.
  void at(Time when, std::function<void()> action);
  void after(Time delay, std::function<void()> action) { at(now_ + delay, std::move(action)); }

  Fiber* start(Process* process, std::function<void()> body);
  // The running fiber; null outside of fibers.
  Fiber* current() const { return current_; }
  // Suspends the running fiber until wake() or `deadline`. True: it was woken.
  bool sleep_until(Time deadline);
  // Lets a sleeping fiber go on, after a delay that the seed chooses.
  void wake(Fiber* fiber);
  // The running fiber has made a system call: costs time, and others may run first.
  void spend(Time cost);
  // Ends a fiber that never runs again. It may be the running one, if leave() follows.
  void discard(Fiber* fiber);
  // Leaves the running fiber for ever.
  [[noreturn]] void leave();

  // Until there is no event, `end` is reached or stop() was called.
  void run(Time end);
  void stop() { stopped_ = true; }
  std::uint64_t switches() const { return switches_; }

  // Ends the sleep with this number at `when`.
  void resume_later(Fiber* fiber, std::uint64_t sleep, Time when);

 private:
  // Small and trivial, because the heap moves events all the time.
  struct Event {
    Time when;
    std::uint64_t order;
    Fiber* fiber;  // null: an action
    // Of a fiber: the number of the sleep that it ends; kTimer: its deadline may have passed. Of an action: its index
    // in actions_.
    std::uint64_t detail;
    // A heap's first element is the largest.
    bool operator<(const Event& other) const { return when != other.when ? when > other.when : order > other.order; }
  };
  static constexpr std::uint64_t kTimer = UINT64_MAX;
  void push(Time when, Fiber* fiber, std::uint64_t detail);
  void set_timer(Fiber* fiber);
  // The fiber whose sleep this event ends; null: none.
  Fiber* woken_by(const Event& event);
  void perform(std::size_t action);
  void resume(Fiber* fiber);
  void switch_out();
  static void enter(boost::context::detail::transfer_t from);
  char* take_stack();
  void recycle();

  Time now_ = 0;
  std::uint64_t order_ = 0;
  std::uint64_t next_fiber_ = 1;
  std::uint64_t switches_ = 0;
  bool stopped_ = false;
  Fiber* current_ = nullptr;
  boost::context::detail::fcontext_t main_ = nullptr;
  std::vector<Event> events_;  // a heap
  std::vector<std::function<void()>> actions_;
  std::vector<std::size_t> free_actions_;  // indices of those that have been performed
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> discarded_;
};

}  // namespace lockstep::simulation
