#include "bench/driver/elastic/elastic_cases.h"

#include <fmt/format.h>

#include "bench/driver/machine.h"

namespace lockstep::bench {
namespace {

constexpr int kStepsPerSnapshot = 20;  // of torchrun's ranks
constexpr int kEndpointPort = 29400;   // inside namespaces that have no other listener
const std::vector<std::string> kOneThread = {"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"};

std::vector<std::string> operator+(std::vector<std::string> left, const std::vector<std::string>& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

std::vector<std::string> run_elastic(const ElasticSetup& setup, int nproc, const std::vector<std::string>& more = {}) {
  return std::vector<std::string>{setup.lockstep,       "run", "--elastic", "--nproc-per-node", std::to_string(nproc),
                                  "--shutdown-timeout", "1"} +
         more;
}

std::vector<std::string> worker(const ElasticSetup& setup, const char* mode, int batch, const std::string& folder) {
  return {setup.worker, mode, setup.options.model, std::to_string(batch), TrainingJob::steps_folder(folder)};
}

ElasticCase on_this_host(const ElasticSetup& setup, std::string name, std::string title, int victim) {
  return {.name = std::move(name),
          .title = std::move(title),
          .engine = "lockstep",
          .ranks = setup.options.nproc,
          .victims = {victim},
          .launchers = [setup](const std::string& folder) {
            return std::vector<Launcher>{
                {run_elastic(setup, setup.options.nproc) + worker(setup, "train", setup.options.batch, folder),
                 kOneThread}};
          }};
}

// One launcher per host; the endpoint is on the first host.
ElasticCase between_hosts(const ElasticSetup& setup, std::string name, std::string title) {
  const HostLayout layout = setup.options.hosts;
  return {.name = std::move(name),
          .title = std::move(title),
          .engine = "lockstep",
          .ranks = layout.hosts * layout.ranks_each,
          .launchers = [setup, layout](const std::string& folder) {
            const std::vector<std::string> environment = kOneThread + std::vector{"LOCKSTEP_SECRET=" + random_secret()};
            std::vector<Launcher> launchers;
            for (int host = 0; host < layout.hosts; ++host) {
              const std::vector<std::string> nodes = {
                  "--nnodes",        fmt::format("1:{}", layout.hosts),
                  "--node-rank",     std::to_string(host),
                  "--rdzv-id",       "bench",
                  "--rdzv-endpoint", fmt::format("{}:{}", setup.network->addresses().front(), kEndpointPort)};
              launchers.push_back({setup.network->command_prefix(host) + run_elastic(setup, layout.ranks_each, nodes) +
                                       worker(setup, "train", setup.options.batch, folder),
                                   environment});
            }
            return launchers;
          }};
}

// The kill is at a random moment between two snapshots, after the first.
ElasticCase torchrun(const ElasticSetup& setup, std::string name, std::string title,
                     const std::vector<std::string>& options) {
  return {.name = std::move(name),
          .title = std::move(title),
          .engine = "torch",
          .ranks = setup.options.nproc,
          .victims = {setup.options.nproc - 1},
          .steps_before = kStepsPerSnapshot,
          .steps_more = kStepsPerSnapshot,
          .launchers = [setup, options](const std::string& folder) {
            const std::vector<std::string> launcher = {setup.python, worker_folder() + "/torch_elastic.py"};
            const std::vector<std::string> standard = {
                "--standalone", fmt::format("--nproc_per_node={}", setup.options.nproc), "--max_restarts=3"};
            return std::vector<Launcher>{
                {launcher + standard + options +
                     std::vector<std::string>{worker_folder() + "/torch_elastic_worker.py", setup.options.model,
                                              std::to_string(setup.options.batch), TrainingJob::steps_folder(folder),
                                              folder + "/snapshot", std::to_string(kStepsPerSnapshot)},
                 kOneThread + std::vector<std::string>{"PYTHONDONTWRITEBYTECODE=1", "TMPDIR=" + folder}}};
          }};
}

}  // namespace

std::vector<ElasticCase> elastic_cases(const ElasticSetup& setup) {
  const ElasticBenchOptions& options = setup.options;
  std::vector<ElasticCase> cases;
  cases.push_back(on_this_host(setup, "rank", "a rank", options.nproc - 1));
  cases.push_back(on_this_host(setup, "leader", "rank 0, the leader", 0));
  if (setup.network != nullptr) {
    const int ranks = options.hosts.hosts * options.hosts.ranks_each;
    cases.push_back(between_hosts(setup, "hosts-rank", "hosts: a rank"));
    cases.back().victims = {ranks - 1};
    cases.push_back(between_hosts(setup, "hosts-leader", "hosts: rank 0, the leader"));
    cases.back().victims = {0};
    cases.push_back(between_hosts(setup, "hosts-coordinator", "hosts: the host of the store"));
    for (int rank = 0; rank < options.hosts.ranks_each; ++rank) cases.back().victims.insert(rank);
    cases.back().kills_first_launcher = true;
    cases.back().is_replaced = false;
  }
  if (!setup.python.empty()) {
    cases.push_back(torchrun(setup, "torch", "torchrun: a rank", {}));
    cases.push_back(torchrun(setup, "torch-monitor", "torchrun that polls every 0.1 s", {"--monitor_interval=0.1"}));
  }
  return cases;
}

Launcher commit_launcher(const ElasticSetup& setup, const std::string& folder) {
  return {run_elastic(setup, 2) + worker(setup, "commit", setup.options.commit_batch, folder) +
              std::vector<std::string>{std::to_string(setup.options.commit_steps)},
          kOneThread};
}

}  // namespace lockstep::bench
