// Threads, locks and time; and the log, which goes to the transcript.
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "simulation/system_calls.h"

namespace lockstep::simulation {

// Laid out as std::thread::_State, which newer libraries keep private. Not in an anonymous namespace: the compiler
// would conclude that nothing implements it.
class ThreadState {
 public:
  virtual ~ThreadState() = default;
  virtual void run() = 0;
};

}  // namespace lockstep::simulation

using namespace lockstep::simulation;

namespace {

// The states of a mutex.
constexpr int kUnlocked = 0, kLocked = 1, kAwaited = 2;

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

Fiber* fiber_of(std::thread* thread) { return *reinterpret_cast<Fiber**>(thread); }

}  // namespace

extern "C" {

int __real_nanosleep(const timespec* time, timespec* left);
int __wrap_nanosleep(const timespec* time, timespec* left) {
  Process* const process = begin_call();
  if (process == nullptr) return __real_nanosleep(time, left);
  const Time deadline = process->when(process->clock() + to_time(*time));
  while (scheduler().now() < deadline) scheduler().sleep_until(deadline);
  return 0;
}

int __real_pthread_mutex_lock(pthread_mutex_t* mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  Process* const process = Simulation::process();
  if (process == nullptr) return __real_pthread_mutex_lock(mutex);
  while (mutex->__data.__lock != kUnlocked) {
    mutex->__data.__lock = kAwaited;
    wait_for(mutex, kNever);
  }
  mutex->__data.__lock = kLocked;
  return 0;
}

int __real_pthread_mutex_unlock(pthread_mutex_t* mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t* mutex) {
  if (Simulation::process() == nullptr) return __real_pthread_mutex_unlock(mutex);
  if (std::exchange(mutex->__data.__lock, kUnlocked) == kAwaited) wake_all(mutex);
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
    std::thread* thread, std::unique_ptr<ThreadState>* state, void (*depend)());
void __wrap__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
    std::thread* thread, std::unique_ptr<ThreadState>* state, void (*depend)()) {
  Process* const process = begin_call();
  if (process == nullptr) {
    return __real__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(thread, state,
                                                                                                        depend);
  }
  const std::shared_ptr<ThreadState> body(state->release());
  Fiber* const fiber = process->start_thread([body] { body->run(); });
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

std::chrono::steady_clock::time_point __real__ZNSt6chrono3_V212steady_clock3nowEv();
std::chrono::steady_clock::time_point __wrap__ZNSt6chrono3_V212steady_clock3nowEv() {
  const Process* const process = Simulation::process();
  if (process == nullptr) return __real__ZNSt6chrono3_V212steady_clock3nowEv();
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(process->clock()));
}

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
