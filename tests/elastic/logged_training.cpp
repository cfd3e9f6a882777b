#include "elastic/logged_training.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <lockstep/lockstep.h>
#include <sys/mman.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/unique_fd.h"

namespace lockstep::testing {
namespace {

// One write for each line: what was written stays, however the process ends.
class Log {
 public:
  explicit Log(const std::string& folder)
      : fd_(::open(
            fmt::format("{}/{}-{}", folder, ::getpid(), std::chrono::steady_clock::now().time_since_epoch().count())
                .c_str(),
            O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
    if (!fd_.valid()) throw std::runtime_error("cannot write to " + folder);
  }
  void write(const std::string& line) {
    const std::string text = line + "\n";
    if (::write(fd_.get(), text.data(), text.size()) < 0) throw std::runtime_error("cannot write the log");
  }

 private:
  UniqueFd fd_;
};

std::pair<torch::Tensor, torch::Tensor> examples(const std::vector<std::size_t>& indices) {
  torch::Tensor input = torch::empty({static_cast<std::int64_t>(indices.size()), 8});
  torch::Tensor target = torch::empty({static_cast<std::int64_t>(indices.size()), 1});
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto x = static_cast<float>(indices[i]);
    for (int j = 0; j < 8; ++j) input[static_cast<std::int64_t>(i)][j] = std::sin(x * static_cast<float>(j + 1));
    target[static_cast<std::int64_t>(i)][0] = std::cos(x);
  }
  return {input, target};
}

// A value of the state that stops the process when it is read after arm(): while a snapshot is written.
class Trap {
 public:
  Trap() {
    page_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    memory_ = ::mmap(nullptr, page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  torch::Tensor tensor() const {
    return torch::from_blob(memory_, {static_cast<std::int64_t>(page_)}, torch::TensorOptions().dtype(torch::kByte));
  }
  static void arm() {
    std::signal(SIGSEGV, [](int) {
      ::raise(SIGSTOP);
      ::mprotect(memory_, page_, PROT_READ | PROT_WRITE);
    });
    ::mprotect(memory_, page_, PROT_NONE);
  }

 private:
  static inline std::size_t page_ = 0;
  static inline void* memory_ = nullptr;
};

void save(const TrainingPlan& plan, elastic::State& state, const elastic::Context& context) {
  if (plan.save_every == 0 || state.step % plan.save_every != 0) return;
  if (state.step == plan.stop_in_save && context.generation() == 1 && context.rank() == 0) {
    state.values["trap"] = Trap().tensor();
    Trap::arm();
  }
  checkpoint::Snapshots(plan.snapshots, {.keep_last = 2}).save(state);
}

}  // namespace

int run_logged_training(const TrainingPlan& plan) {
  torch::set_num_threads(1);
  torch::manual_seed(7);
  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::ReLU(), torch::nn::Linear(32, 1));
  optim::Adam optimizer(model->parameters(), 1e-2);
  // Another rate in every step, so that a process with the wrong step would have other parameters than the others.
  LearningRate rate(optimizer, schedule::cosine_restarts({.period = 40, .final_factor = 0.1}));
  Log log(plan.folder);
  elastic::State state{.model = *model, .optimizer = optimizer};
  state.sampler = DistributedSamplerState{.seed = 3, .dataset_size = plan.samples};
  elastic::Options options{.peer_timeout = std::chrono::milliseconds(plan.peer_timeout_ms),
                           .silent_timeout = std::chrono::milliseconds(plan.silent_timeout_ms)};
  if (plan.quorum_timeout_ms > 0) options.quorum_timeout = std::chrono::milliseconds(plan.quorum_timeout_ms);
  if (!plan.snapshots.empty()) {
    options.on_give_up = [&](const std::string&) {
      checkpoint::Snapshots(plan.snapshots, {.alone = true}).save(state);
    };
    checkpoint::Snapshots(plan.snapshots, {.alone = true}).load(state);
  }
  elastic::run(
      state,
      [&](elastic::Context& context) {
        DistributedDataParallel ddp(model, {.sample_weighted = true});
        // All ranks must decide alike: rank 0 checks, the others get its result.
        const auto is_over = [&] {
          if (plan.epochs > 0) return context.epoch() >= plan.epochs;
          torch::Tensor over = torch::full({1}, ::access(plan.finish.c_str(), F_OK) == 0 ? 1 : 0, torch::kLong);
          broadcast(over, 0);
          return over.item<std::int64_t>() != 0;
        };
        while (!is_over()) {
          while (const auto indices = context.next_batch(static_cast<std::size_t>(plan.batch))) {
            const auto where = [&](std::int64_t step) {
              return fmt::format("{} {} {} {}", context.epoch(), step, context.generation(), context.rank());
            };
            const std::int64_t step = context.step();
            log.write(fmt::format("begin {} {} {}", where(step), context.world_size(), fmt::join(*indices, " ")));
            const auto [input, target] = examples(*indices);
            optimizer.zero_grad();
            const torch::Tensor loss = torch::mse_loss(ddp(input), target);
            loss.backward();
            context.step(optimizer, rate);
            // Before the commit, which may not return.
            log.write(fmt::format("commit {} {:x} {:a}", where(step), elastic::hash_of_parameters(*model),
                                  loss.item<double>()));
            context.commit();
            save(plan, state, context);
            if (plan.step_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(plan.step_ms));
          }
          log.write(fmt::format("end {}", context.epoch()));
          context.next_epoch();
        }
      },
      options);
  return 0;
}

}  // namespace lockstep::testing
