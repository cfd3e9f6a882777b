#include "strangers/attacked_job.h"

#include <fmt/format.h>
#include <lockstep/communicator/communicator.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <thread>
#include <vector>

#include "base/random.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* kStopFile = "STRANGERS_STOP_FILE";
constexpr rlim_t kUsualDescriptors = 1024;

std::string join_file(const std::string& stop_file) { return stop_file + ".join"; }

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace

int run_attacked_rank() {
  const rlimit usual{.rlim_cur = kUsualDescriptors, .rlim_max = kUsualDescriptors};
  ::setrlimit(RLIMIT_NOFILE, &usual);
  const char* const stop_file = std::getenv(kStopFile);
  const bool is_last = std::string(std::getenv("RANK")) == std::to_string(std::atoi(std::getenv("WORLD_SIZE")) - 1);
  while (is_last && !std::filesystem::exists(join_file(stop_file))) std::this_thread::sleep_for(1ms);
  const auto group = Communicator::create({.group = {.init_timeout = 60s, .timeout = 60s}});
  print_mark("formed");
  std::vector<float> gradients(16 << 10);
  auto report_at = Deadline::Clock::now();
  for (long step = 0;; ++step) {
    std::fill(gradients.begin(), gradients.end(), 1.0F);
    group->all_reduce(std::span(gradients));
    if (gradients.back() != static_cast<float>(group->size())) return 2;
    // Rank 0 decides when the job ends, and adds up the processor time.
    std::vector<double> status(2);
    status[0] = group->rank() == 0 && std::filesystem::exists(stop_file) ? 1 : 0;
    status[1] = processor_seconds();
    group->all_reduce(std::span(status));
    if (group->rank() == 0 && Deadline::Clock::now() >= report_at) {
      print_mark(fmt::format("progress {} {:.3f}", step, status[1]));
      report_at += 100ms;
    }
    if (status[0] > 0) break;
  }
  print_mark("ended well");
  return 0;
}

AttackedJob::AttackedJob(int ranks)
    : size_(ranks), stop_file_(std::filesystem::temp_directory_path() / ("lockstep-strangers-" + random_hex(8))) {}

AttackedJob::~AttackedJob() {
  ranks_.reset();
  std::filesystem::remove(stop_file_);
  std::filesystem::remove(join_file(stop_file_));
}

void AttackedJob::start() {
  const std::uint16_t port = port_.port();
  port_.listen().reset();  // rank 0 listens there, a moment later
  ranks_ = std::make_unique<ProcessSet>(
      start_ranks(size_, "attacked_rank",
                  {.environment = {{"MASTER_PORT", std::to_string(port)},
                                   {"LOCKSTEP_STORE_FD", std::nullopt},
                                   {"LOCKSTEP_SECRET", random_hex(32)},
                                   {kStopFile, stop_file_}},
                   .rank_variables = [](int rank) {
                     return Environment{{"LOCKSTEP_HOST_ID", "host" + std::to_string(rank / 2)}};
                   }}));
}

void AttackedJob::let_the_last_rank_join() { std::ofstream(join_file(stop_file_)) << "join\n"; }

std::set<std::uint16_t> AttackedJob::ports() const {
  std::set<std::uint16_t> all;
  for (int rank = 0; ranks_ && rank < size_; ++rank) all.merge(listening_ports(ranks_->pid(rank)));
  return all;
}

std::size_t AttackedJob::most_descriptors() {
  for (int rank = 0; rank < size_; ++rank) {
    most_descriptors_ = std::max(most_descriptors_, open_descriptors(ranks_->pid(rank)));
  }
  return most_descriptors_;
}

bool AttackedJob::finish() {
  std::ofstream(stop_file_) << "stop\n";
  return ranks_->wait_all(in_seconds(60)) && ranks_->all_succeeded();
}

AttackedJob::Progress AttackedJob::progress() const {
  const std::string output = ranks_->output(0);
  Progress progress;
  const auto last = output.rfind("progress ");
  if (last != std::string::npos) {
    std::sscanf(output.c_str() + last, "progress %lf %lf", &progress.steps, &progress.processor_seconds);
  }
  return progress;
}

}  // namespace lockstep::testing
