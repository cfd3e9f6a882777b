// A rank of the dashboard's tests: trains in appearance only, with the phases, buckets and collectives of a real step.
//   dashboard_rank [name=value]...
#include <lockstep/engine.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "record/operation_log.h"
#include "record/step_clock.h"

namespace {

constexpr std::size_t kBuckets = 8;

struct Options {
  int steps = 1'000'000;
  int step_ms = 20;   // without waiting
  int late = -1;      // this rank
  int late_ms = 0;    // loads data so much longer
  int slow = -1;      // this rank
  int slow_ms = 0;    // computes so much longer before bucket 5
  int kill = -1;      // this rank kills itself
  int kill_step = 0;  // in this step, unless the job has restarted
  int hang = -1;      // this rank stops
  int hang_step = 0;  // in this step
  int snapshots = 0;  // every so many steps
  int alone = 0;      // 1: records as if there were a group, and communicates with no other rank
};

Options parse(int argc, char** argv) {
  std::map<std::string, int> values;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t equals = argument.find('=');
    values[argument.substr(0, equals)] = std::atoi(argument.c_str() + equals + 1);
  }
  Options options;
  const auto take = [&](const char* name, int& value) {
    if (values.count(name) != 0) value = values[name];
  };
  take("steps", options.steps);
  take("step_ms", options.step_ms);
  take("late", options.late);
  take("late_ms", options.late_ms);
  take("slow", options.slow);
  take("slow_ms", options.slow_ms);
  take("kill", options.kill);
  take("kill_step", options.kill_step);
  take("hang", options.hang);
  take("hang_step", options.hang_step);
  take("snapshots", options.snapshots);
  take("alone", options.alone);
  return options;
}

// In place of computing: the test's machine may have fewer cores than ranks.
void work(double milliseconds) {
  if (milliseconds > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

int number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

class Training {
 public:
  // `group`: null if the rank is alone.
  Training(const Options& options, lockstep::Communicator* group)
      : options_(options),
        group_(group),
        rank_(group != nullptr ? group->rank() : number_in("RANK")),
        gradients_(kBuckets, std::vector<float>(1024, 1)) {
    if (group != nullptr) return;
    lockstep::record::Recorder::process().set_world(rank_, number_in("WORLD_SIZE"), 0);
    log_ = std::make_unique<lockstep::record::OperationLog>("world", "alone", rank_, number_in("WORLD_SIZE"));
  }

  void step(int number) {
    const int rank = rank_;
    const double unit = options_.step_ms / 10.0;
    {
      const lockstep::Phase phase(lockstep::PhaseKind::data);
      work(unit + (rank == options_.late ? options_.late_ms : 0));
    }
    if (rank == options_.hang && number == options_.hang_step) {
      const lockstep::Phase phase(lockstep::PhaseKind::data);
      while (true) ::pause();
    }
    if (rank == options_.kill && number == options_.kill_step && first_start()) ::raise(SIGKILL);
    clock_.forward_began();
    work(3 * unit);
    clock_.forward_ended();
    backward(rank, unit);
    clock_.step_ended();
    {
      const lockstep::Phase phase(lockstep::PhaseKind::optimizer);
      work(unit);
    }
    if (options_.snapshots > 0 && number % options_.snapshots == 0) {
      const lockstep::Phase phase(lockstep::PhaseKind::snapshot);
      work(5 * unit);
    }
    lockstep::log_metrics({{"loss", 2.3 * std::exp(-number / 150.0) + 0.08 * std::sin(number * 1.7 + rank)},
                           {"accuracy", 0.92 - 0.8 * std::exp(-number / 120.0)},
                           {"progress", double(number) / options_.steps}});
  }

 private:
  void backward(int rank, double unit) {
    std::vector<lockstep::Work> works;
    for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
      work(5 * unit / kBuckets + (rank == options_.slow && bucket == 5 ? options_.slow_ms : 0));
      clock_.bucket_launched(bucket, gradients_[bucket].size() * sizeof(float));
      if (group_ == nullptr) {
        log_->begin({.sequence = ++sequence_, .bytes = 4096});
        log_->end(true, false);
        clock_.bucket_reduced(bucket);
        continue;
      }
      works.push_back(group_->all_reduce_async(lockstep::Buffer(std::span(gradients_[bucket]))));
      works.back().then([this, bucket](const lockstep::Status&) { clock_.bucket_reduced(bucket); });
    }
    clock_.gradients_complete();
    for (const auto& one : works) one.wait();
    clock_.wait_ended();
  }

  static bool first_start() { return number_in("TORCHELASTIC_RESTART_COUNT") == 0; }

  const Options options_;
  lockstep::Communicator* const group_;
  const int rank_;
  std::unique_ptr<lockstep::record::OperationLog> log_;
  std::uint64_t sequence_ = 0;
  std::vector<std::vector<float>> gradients_;
  lockstep::record::StepClock clock_;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const auto group = options.alone != 0 ? nullptr : lockstep::Communicator::create();
  Training training(options, group.get());
  for (int step = 1; step <= options.steps; ++step) training.step(step);
  return 0;
}
