// The ranks of the launcher's tests: the first argument selects what they do.
#include <lockstep/engine.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

// A frame that must appear in a backtrace, so not in the unnamed namespace.
__attribute__((noinline)) int read_from(const int* pointer) { return *pointer; }

namespace {

int rank_number() { return std::atoi(std::getenv("RANK")); }

const int* volatile g_nowhere = nullptr;
volatile int g_value = 0;

void read_from_nowhere() { g_value = read_from(g_nowhere); }

int all_reduce_until_failure(int culprit, void (*fail)()) {
  auto group = lockstep::Communicator::create();
  std::vector<float> values(1000, 1.0F);
  for (int step = 0; step < 1'000'000; ++step) {
    if (step == 10 && group->rank() == culprit) fail();
    group->all_reduce(lockstep::Buffer(std::span(values)));
  }
  return 0;
}

int sum() {
  auto group = lockstep::Communicator::create();
  std::vector<float> values(4, static_cast<float>(group->rank() + 1));
  group->all_reduce(lockstep::Buffer(std::span(values)));
  std::printf("sum %.0f\n", static_cast<double>(values[0]));
  return 0;
}

// The second all_reduce waits for rank 2.
int late() {
  auto group = lockstep::Communicator::create();
  float value = 1;
  group->all_reduce(lockstep::Buffer(std::span(&value, 1)));
  if (group->rank() == 2) {
    const lockstep::Phase phase(lockstep::PhaseKind::data);
    std::printf("loading\n");
    std::fflush(stdout);
    while (true) ::pause();
  }
  group->all_reduce(lockstep::Buffer(std::span(&value, 1)));
  return 0;
}

int lines() {
  const int rank = rank_number();
  const std::string filler(300, static_cast<char>('a' + rank));
  for (int i = 0; i < 10'000; ++i) {
    // In two writes, so that a line is often seen in part.
    const std::string first = "begin " + std::to_string(rank) + " " + std::to_string(i) + " " + filler;
    const std::string second = filler + " end\n";
    if (::write(1, first.data(), first.size()) < 0 || ::write(1, second.data(), second.size()) < 0) return 1;
  }
  return 0;
}

int wait_for_ever() {
  std::printf("ready %d\n", rank_number());
  std::fflush(stdout);
  while (true) ::pause();
}

void announce_signal(int signal) {
  const char* text = signal == SIGINT ? "got SIGINT\n" : "got SIGTERM\n";
  static_cast<void>(!::write(1, text, std::strlen(text)));
}

int ignore_signals() {
  std::signal(SIGINT, announce_signal);
  std::signal(SIGTERM, announce_signal);
  return wait_for_ever();
}

int crash() {
  read_from_nowhere();
  return g_value;
}

int throw_exception() { throw std::runtime_error("the data set is empty"); }

// Steps 1 to 8; after a restart from step 4 on, as from a snapshot. Rank 1 is killed in step 6.
int log_metrics() {
  const int rank = rank_number();
  const bool restarted = std::atoi(std::getenv("TORCHELASTIC_RESTART_COUNT")) > 0;
  for (int step = restarted ? 4 : 1; step <= 8; ++step) {
    lockstep::log_metric("train/loss", 1.0 / step + rank, step);
    if (rank == 0) lockstep::log_metric("rate", 0.5, step);
    if (!restarted && step == 6 && rank == 1) ::raise(SIGKILL);
    ::usleep(50'000);
  }
  return 0;
}

int abort_now() { std::abort(); }

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int (*)()> parts = {
      {"sum", sum},
      {"late", late},
      {"lines", lines},
      {"wait", wait_for_ever},
      {"ignore", ignore_signals},
      {"crash", crash},
      {"throw", throw_exception},
      {"abort", abort_now},
      {"metrics", log_metrics},
      {"peer_crash", [] { return all_reduce_until_failure(2, read_from_nowhere); }},
      {"peer_kill", [] { return all_reduce_until_failure(1, [] { ::raise(SIGKILL); }); }},
  };
  const auto part = parts.find(argc > 1 ? argv[1] : "");
  if (part == parts.end()) return 64;
  // The second argument is the rank that does it; the others wait.
  if (argc > 2 && std::atoi(argv[2]) != rank_number()) return wait_for_ever();
  return part->second();
}
