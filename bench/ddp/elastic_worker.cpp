// One rank of `lockstep bench elastic`. Started by `lockstep run --elastic`.
//
//   lockstep-bench-elastic train MODEL BATCH FOLDER        trains until it is ended
//   lockstep-bench-elastic commit MODEL BATCH FOLDER STEPS times steps with and without commit()
// It logs the times of its steps to FOLDER/<pid>, in the format of bench/driver/elastic/step_log.h.
#include <fcntl.h>
#include <fmt/format.h>
#include <lockstep/lockstep.h>
#include <sys/stat.h>
#include <time.h>
#include <torch/torch.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <string>

#include "base/unique_fd.h"
#include "bench/ddp/models.h"

namespace {

namespace elastic = lockstep::elastic;

constexpr std::int64_t kSamples = 1'000'000;  // of an epoch: no run reaches its end
constexpr std::int64_t kDifferentSamples = 512;

std::int64_t now_on(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

std::int64_t now() { return now_on(CLOCK_MONOTONIC); }

// When this process was forked, on the monotonic clock; the kernel reports it in ticks since the boot.
std::int64_t process_start() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(text.rfind(')') + 2));  // the name before it may contain any character
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  const std::int64_t since_boot = std::stoll(field) * (1'000'000'000LL / ::sysconf(_SC_CLK_TCK));
  return now() - (now_on(CLOCK_BOOTTIME) - since_boot);
}

// One write(2) per line: a line is kept however the process ends.
class Log {
 public:
  explicit Log(const std::string& folder)
      : fd_(::open(fmt::format("{}/{}", folder, ::getpid()).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
    if (!fd_.valid()) throw std::runtime_error("cannot write to " + folder);
  }
  template <typename... Values>
  void line(fmt::format_string<Values...> format, Values&&... values) {
    const std::string text = fmt::format(format, std::forward<Values>(values)...) + "\n";
    if (::write(fd_.get(), text.data(), text.size()) < 0) throw std::runtime_error("cannot write the log");
  }

 private:
  lockstep::UniqueFd fd_;
};

struct Training {
  explicit Training(const std::string& model, std::int64_t batch_size)
      : task(lockstep::bench::make_task(model)),
        batch(batch_size),
        data(task.data(kDifferentSamples, 100)),
        optimizer(task.module->parameters(), torch::optim::SGDOptions(1e-3).momentum(0.9)) {
    state.sampler = lockstep::DistributedSamplerState{.seed = 1, .dataset_size = kSamples};
  }

  std::unique_ptr<lockstep::GradientSynchronizer> synchronizer() {
    return std::make_unique<lockstep::GradientSynchronizer>(*task.module);
  }
  // Forward, backward and the optimizer. Without a context, the step is not to be committed.
  void step(lockstep::GradientSynchronizer& sync, const std::vector<std::size_t>& indices, elastic::Context* context) {
    std::vector<std::int64_t> rows(indices.begin(), indices.end());
    const torch::Tensor index = torch::tensor(rows).remainder(kDifferentSamples);
    const torch::Tensor input = data.first.index_select(0, index), target = data.second.index_select(0, index);
    for (auto& parameter : optimizer.param_groups()[0].params()) parameter.mutable_grad() = torch::Tensor();
    sync.before_forward(input.size(0));
    const torch::Tensor output = task.forward(input);
    sync.after_forward({output});
    task.loss(output, target).backward();
    if (context != nullptr) {
      context->step(optimizer);
    } else {
      optimizer.step();
    }
  }

  lockstep::bench::Task task;
  const std::int64_t batch;
  const std::pair<torch::Tensor, torch::Tensor> data;
  torch::optim::SGD optimizer;
  elastic::State state{.model = *task.module, .optimizer = optimizer};
};

void train(Training& training, Log& log, elastic::Context& context) {
  const auto sync = training.synchronizer();
  while (const auto indices = context.next_batch(static_cast<std::size_t>(training.batch))) {
    training.step(*sync, *indices, &context);
    context.commit();
    log.line("step {} {} {} {} {} {}", context.step(), now(), ::getpid(), context.generation(), context.rank(),
             context.world_size());
  }
}

// Pairs of steps, one with commit() and one without, in alternating order.
void time_commits(Training& training, Log& log, int pairs, elastic::Context& context) {
  const auto sync = training.synchronizer();
  const std::vector<std::size_t> indices(static_cast<std::size_t>(training.batch), 0);
  const auto time_step = [&](bool commits, std::int64_t& commit_ns) {
    lockstep::barrier();
    const std::int64_t start = now();
    training.step(*sync, indices, commits ? &context : nullptr);
    const std::int64_t stepped = now();
    if (commits) context.commit();
    const std::int64_t end = now();
    if (commits) commit_ns = end - stepped;
    return end - start;
  };
  std::int64_t commit_ns = 0;
  for (int i = 0; i < 3; ++i) time_step(true, commit_ns);  // the first steps allocate memory and rebuild the buckets
  for (int pair = 0; pair < pairs; ++pair) {
    std::int64_t times[2] = {};
    for (const bool commits : {pair % 2 == 0, pair % 2 != 0}) times[commits] = time_step(commits, commit_ns);
    log.line("pair {} {} {} {}", pair, times[1], times[0], commit_ns);
  }
}

int run(const std::vector<std::string>& arguments) {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  Log log(arguments[3]);
  Training training(arguments[1], std::stoll(arguments[2]));
  log.line("enter {} {} {}", now(), ::getpid(), process_start());
  elastic::run(training.state, [&](elastic::Context& context) {
    if (arguments[0] == "train") {
      train(training, log, context);
    } else {
      time_commits(training, log, std::stoi(arguments[4]), context);
    }
  });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool trains = arguments.size() == 4 && arguments[0] == "train";
  if (!trains && !(arguments.size() == 5 && arguments[0] == "commit")) {
    std::cerr << "lockstep-bench-elastic is started by `lockstep bench elastic`\n";
    return 2;
  }
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
