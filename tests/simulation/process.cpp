#include "simulation/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "simulation/network.h"

namespace lockstep::simulation {
namespace {

constexpr int kFirstDescriptor = 1'000'000;  // far from real ones

Simulation* running = nullptr;

}  // namespace

void Object::wake_at_change(Fiber* fiber) {
  const auto known = std::ranges::find(waiters_, fiber, &Waiter::fiber);
  if (known != waiters_.end()) {
    known->sleep = fiber->sleep;
  } else {
    waiters_.push_back({.fiber = fiber, .sleep = fiber->sleep});
  }
}

void Object::changed() {
  for (const Waiter& waiter : waiters_) {
    if (waiter.fiber->sleeps(waiter.sleep)) Simulation::current().scheduler()->wake(waiter.fiber);
  }
  waiters_.clear();
}

std::string Host::address_text() const {
  return fmt::format("{}.{}.{}.{}", address >> 24, (address >> 16) & 255, (address >> 8) & 255, address & 255);
}

Process::Process(Simulation& simulation, Host& host, std::string name, int pid,
                 std::map<std::string, std::string> environment)
    : simulation_(simulation), host_(host), name_(std::move(name)), pid_(pid), environment_(std::move(environment)) {}

const char* Process::getenv(const std::string& name) const {
  const auto found = environment_.find(name);
  return found == environment_.end() ? nullptr : found->second.c_str();
}

Fiber* Process::start_thread(std::function<void()> body) {
  Fiber* const fiber = simulation_.scheduler()->start(this, std::move(body));
  fibers_.push_back(fiber);
  return fiber;
}

void Process::kill(const std::string& reason) {
  if (!alive_) return;
  simulation_.log(fmt::format("{} ends: {}", name_, reason));
  alive_ = false;
  stopped_ = false;
  Scheduler& scheduler = *simulation_.scheduler();
  const bool itself = scheduler.current() != nullptr && scheduler.current()->process == this;
  for (Fiber* const fiber : fibers_) scheduler.discard(fiber);
  deferred_.clear();
  for (const auto& object : std::exchange(descriptors_, {})) {
    if (!object) continue;
    object->changed();
    if (object.use_count() == 1) object->closed();
  }
  for (const auto& action : std::exchange(at_end, {})) action();
  if (itself) scheduler.leave();
}

void Process::stop() {
  if (!alive_ || stopped_) return;
  simulation_.log(fmt::format("{} stops", name_));
  stopped_ = true;
}

void Process::resume() {
  if (!alive_ || !stopped_) return;
  simulation_.log(fmt::format("{} continues", name_));
  stopped_ = false;
  Scheduler& scheduler = *simulation_.scheduler();
  for (const auto& [fiber, sleep] : std::exchange(deferred_, {})) {
    scheduler.resume_later(fiber, sleep, simulation_.now() + simulation_.random().below(50 * kMicrosecond));
  }
}

void Process::at_operation(std::int64_t operations, std::function<void()> action) {
  trigger_ = operations_ + operations;
  on_trigger_ = std::move(action);
}

void Process::count_operation() {
  if (++operations_ == trigger_ && on_trigger_) std::exchange(on_trigger_, nullptr)();
  simulation_.scheduler()->spend(300);
  // A stopped process does not come back from this call until it continues.
  while (stopped_) {
    simulation_.scheduler()->resume_later(simulation_.scheduler()->current(), simulation_.scheduler()->current()->sleep,
                                          simulation_.now());
    simulation_.scheduler()->sleep_until(kNever);
  }
}

Time Process::clock() const { return offset_ + static_cast<Time>(static_cast<double>(simulation_.now()) * rate_); }

Time Process::when(Time time) const {
  if (time >= kNever / 4) return kNever;
  return static_cast<Time>(static_cast<double>(time - offset_) / rate_) + 1;
}

int Process::add(std::shared_ptr<Object> object) {
  descriptors_.push_back(std::move(object));
  return kFirstDescriptor + static_cast<int>(descriptors_.size()) - 1;
}

Object* Process::find(int fd) const {
  const auto index = static_cast<std::size_t>(fd - kFirstDescriptor);  // of a negative number: too large
  return index < descriptors_.size() ? descriptors_[index].get() : nullptr;
}

bool Process::close(int fd) {
  if (find(fd) == nullptr) return false;
  const std::shared_ptr<Object> object = std::move(descriptors_[static_cast<std::size_t>(fd - kFirstDescriptor)]);
  object->changed();
  object->closed();
  return true;
}

Simulation::Simulation(std::uint64_t seed, bool verbose)
    : scheduler_(seed), verbose_(verbose), network_(std::make_unique<Network>(*this)) {
  if (running != nullptr) std::abort();
  running = this;
}

Simulation::~Simulation() { running = nullptr; }

Simulation& Simulation::current() { return *running; }

Process* Simulation::process() {
  if (running == nullptr) return nullptr;
  Fiber* const fiber = running->scheduler_.current();
  return fiber == nullptr ? nullptr : fiber->process;
}

Host& Simulation::add_host(const std::string& name) {
  auto host = std::make_unique<Host>();
  host->name = name;
  host->index = static_cast<int>(hosts_.size());
  host->address = (10U << 24) | (77U << 16) | static_cast<std::uint32_t>(hosts_.size() + 1);
  hosts_.push_back(std::move(host));
  return *hosts_.back();
}

Process& Simulation::start(Host& host, const std::string& name, std::map<std::string, std::string> environment,
                           std::function<void()> body) {
  processes_.push_back(std::make_unique<Process>(*this, host, name, next_pid_++, std::move(environment)));
  Process& process = *processes_.back();
  log(fmt::format("{} starts on {}", name, host.name));
  process.start_thread([&process, body = std::move(body)] {
    std::string reason = "returned";
    try {
      body();
    } catch (const std::exception& error) {
      reason = fmt::format("exception: {}", error.what());
    }
    process.kill(reason);
  });
  return process;
}

Process* Simulation::find_process(int pid) const {
  for (const auto& process : processes_) {
    if (process->pid() == pid) return process.get();
  }
  return nullptr;
}

void Simulation::log(const std::string& line) {
  if (!verbose_) return;
  const Process* const process = Simulation::process();
  fmt::print(stderr, "{:10.6f} {:<10} {}\n", static_cast<double>(now()) / kSecond,
             process == nullptr ? "" : process->name(), line);
}

}  // namespace lockstep::simulation
