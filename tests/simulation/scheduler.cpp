#include "simulation/scheduler.h"

#include <cxxabi.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "simulation/process.h"

namespace lockstep::simulation {
namespace {

constexpr std::size_t kStackBytes = 512 << 10;  // only touched pages cost memory

std::vector<char*>& free_stacks() {
  static std::vector<char*> stacks;
  return stacks;
}

}  // namespace

Scheduler::~Scheduler() {
  for (const auto& fiber : fibers_) {
    if (fiber->stack != nullptr) free_stacks().push_back(fiber->stack);
  }
}

char* Scheduler::take_stack() {
  std::vector<char*>& stacks = free_stacks();
  if (!stacks.empty()) {
    char* const stack = stacks.back();
    stacks.pop_back();
    return stack;
  }
  void* const memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap of a fiber's stack");
    std::abort();
  }
  ::mprotect(memory, 4096, PROT_NONE);
  return static_cast<char*>(memory);
}

void Scheduler::push(Time when, Fiber* fiber, std::uint64_t detail) {
  events_.push_back({.when = std::max(when, now_), .order = order_++, .fiber = fiber, .detail = detail});
  std::push_heap(events_.begin(), events_.end());
}

void Scheduler::at(Time when, std::function<void()> action) {
  if (free_actions_.empty()) {
    free_actions_.push_back(actions_.size());
    actions_.emplace_back();
  }
  const std::size_t index = free_actions_.back();
  free_actions_.pop_back();
  actions_[index] = std::move(action);
  push(when, nullptr, index);
}

void Scheduler::perform(std::size_t index) {
  const std::function<void()> action = std::exchange(actions_[index], nullptr);
  free_actions_.push_back(index);
  action();
}

Fiber* Scheduler::start(Process* process, std::function<void()> body) {
  auto fiber = std::make_unique<Fiber>();
  fiber->id = next_fiber_++;
  fiber->process = process;
  fiber->body = std::move(body);
  fiber->stack = take_stack();
  fiber->context = boost::context::detail::make_fcontext(fiber->stack + kStackBytes, kStackBytes, &Scheduler::enter);
  Fiber* const started = fiber.get();
  fibers_.push_back(std::move(fiber));
  wake(started);
  return started;
}

void Scheduler::enter(boost::context::detail::transfer_t from) {
  auto* const fiber = static_cast<Fiber*>(from.data);
  Simulation::current().scheduler()->main_ = from.fctx;
  fiber->body();
  fiber->body = nullptr;
  fiber->done = true;
  Scheduler& scheduler = *Simulation::current().scheduler();
  for (Fiber* const joiner : fiber->joiners) scheduler.wake(joiner);
  scheduler.discard(fiber);
  scheduler.leave();
}

void Scheduler::wake(Fiber* fiber) {
  // Mostly at once, sometimes after a while: another thread may get the core first.
  const Time delay = random.one_in(64) ? random.below(2 * kMillisecond) : random.below(20 * kMicrosecond);
  push(now_ + delay, fiber, fiber->sleep);
}

void Scheduler::resume_later(Fiber* fiber, std::uint64_t sleep, Time when) { push(when, fiber, sleep); }

bool Scheduler::sleep_until(Time deadline) {
  Fiber* const fiber = current_;
  fiber->deadline = deadline;
  set_timer(fiber);
  switch_out();
  fiber->deadline = kNever;
  return fiber->woken;
}

// Most sleeps end before their deadline, and the deadline of the next is later. So one timer per fiber is enough: when
// it rings, it is set again.
void Scheduler::set_timer(Fiber* fiber) {
  if (fiber->deadline >= fiber->timer) return;
  fiber->timer = std::max(fiber->deadline, now_);
  push(fiber->timer, fiber, kTimer);
}

void Scheduler::spend(Time cost) {
  now_ += cost;
  if (!random.one_in(24)) return;
  resume_later(current_, current_->sleep, now_ + random.below(random.one_in(16) ? kMillisecond : 100 * kMicrosecond));
  switch_out();
}

void Scheduler::switch_out() {
  Fiber* const fiber = current_;
  fiber->saved_errno = errno;
  void* const globals = abi::__cxa_get_globals();
  std::memcpy(fiber->exceptions, globals, sizeof(fiber->exceptions));
  current_ = nullptr;
  main_ = boost::context::detail::jump_fcontext(main_, fiber).fctx;
  std::memcpy(abi::__cxa_get_globals(), fiber->exceptions, sizeof(fiber->exceptions));
  errno = fiber->saved_errno;
}

void Scheduler::leave() {
  current_ = nullptr;
  boost::context::detail::jump_fcontext(main_, nullptr);
  std::abort();
}

void Scheduler::discard(Fiber* fiber) {
  fiber->done = true;
  ++fiber->sleep;
  discarded_.push_back(fiber);
}

void Scheduler::recycle() {
  for (Fiber* const fiber : discarded_) {
    if (fiber->stack != nullptr) free_stacks().push_back(std::exchange(fiber->stack, nullptr));
  }
  discarded_.clear();
}

void Scheduler::resume(Fiber* fiber) {
  ++switches_;
  ++fiber->sleep;
  current_ = fiber;
  void* mine[2];
  std::memcpy(mine, abi::__cxa_get_globals(), sizeof(mine));
  std::memcpy(abi::__cxa_get_globals(), fiber->exceptions, sizeof(fiber->exceptions));
  fiber->context = boost::context::detail::jump_fcontext(fiber->context, fiber).fctx;
  std::memcpy(abi::__cxa_get_globals(), mine, sizeof(mine));
  recycle();
}

Fiber* Scheduler::woken_by(const Event& event) {
  Fiber* const fiber = event.fiber;
  if (event.detail != kTimer) return fiber->sleeps(event.detail) ? fiber : nullptr;
  if (fiber->done || event.when != fiber->timer) return nullptr;
  fiber->timer = kNever;
  if (fiber->deadline <= now_) return fiber;
  set_timer(fiber);
  return nullptr;
}

void Scheduler::run(Time end) {
  while (!stopped_ && !events_.empty()) {
    if (events_.front().when > end) break;
    std::pop_heap(events_.begin(), events_.end());
    const Event event = events_.back();
    events_.pop_back();
    now_ = std::max(now_, event.when);
    if (event.fiber == nullptr) {
      perform(event.detail);
      recycle();
      continue;
    }
    Fiber* const fiber = woken_by(event);
    if (fiber == nullptr) continue;
    if (fiber->process->stopped()) {
      fiber->process->defer(fiber, fiber->sleep);
      continue;
    }
    fiber->woken = event.detail != kTimer;
    resume(fiber);
  }
  now_ = std::max(now_, stopped_ ? now_ : end);
}

}  // namespace lockstep::simulation
