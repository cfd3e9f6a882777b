#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "elastic/logged_training.h"

namespace lockstep::testing {
namespace {

struct Begun {
  int size = 0;
  std::map<int, std::vector<int>> samples;  // by rank
};
struct Committed {
  std::set<std::string> hashes;
  std::string loss;  // of rank 0
};

// By epoch, step, generation.
using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

// Two lineages: a generation still made steps after a newer one had begun at an earlier step. One step in both is not a
// split: the ranks that made it in the older generation were lost before the others learned of it.
void find_splits(const std::map<Key, Committed>& committed, std::vector<std::string>* problems) {
  std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> steps;  // by generation: the first and the last
  for (const auto& [key, ignored] : committed) {
    const auto& [epoch, step, generation] = key;
    const auto [where, is_new] = steps.try_emplace(generation, step, step);
    where->second.first = std::min(where->second.first, step);
    where->second.second = std::max(where->second.second, step);
  }
  std::int64_t last = -1, of = -1;  // of all older generations
  for (const auto& [generation, range] : steps) {
    if (last > range.first) {
      problems->push_back(fmt::format("two lineages: generation {} made step {}, but generation {} began at step {}",
                                      of, last, generation, range.first));
    }
    if (range.second > last) {
      last = range.second;
      of = generation;
    }
  }
}

int number_from(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace

TrainingPlan TrainingPlan::from_environment() {
  TrainingPlan plan;
  plan.folder = std::getenv("LOG_FOLDER");
  plan.samples = number_from("SAMPLES", plan.samples);
  plan.batch = number_from("BATCH", plan.batch);
  plan.epochs = number_from("EPOCHS", plan.epochs);
  if (const char* finish = std::getenv("FINISH"); finish != nullptr) plan.finish = finish;
  plan.step_ms = number_from("STEP_MS", plan.step_ms);
  plan.peer_timeout_ms = number_from("PEER_TIMEOUT_MS", plan.peer_timeout_ms);
  plan.silent_timeout_ms = number_from("SILENT_TIMEOUT_MS", plan.silent_timeout_ms);
  plan.quorum_timeout_ms = number_from("QUORUM_TIMEOUT_MS", plan.quorum_timeout_ms);
  if (const char* snapshots = std::getenv("SNAPSHOTS"); snapshots != nullptr) plan.snapshots = snapshots;
  plan.save_every = number_from("SAVE_EVERY", plan.save_every);
  plan.stop_in_save = number_from("STOP_IN_SAVE", plan.stop_in_save);
  return plan;
}

std::map<std::string, std::string> TrainingPlan::variables() const {
  return {{"LOG_FOLDER", folder},
          {"SAMPLES", std::to_string(samples)},
          {"BATCH", std::to_string(batch)},
          {"EPOCHS", std::to_string(epochs)},
          {"FINISH", finish},
          {"STEP_MS", std::to_string(step_ms)},
          {"PEER_TIMEOUT_MS", std::to_string(peer_timeout_ms)},
          {"SILENT_TIMEOUT_MS", std::to_string(silent_timeout_ms)},
          {"QUORUM_TIMEOUT_MS", std::to_string(quorum_timeout_ms)},
          {"SNAPSHOTS", snapshots},
          {"SAVE_EVERY", std::to_string(save_every)},
          {"STOP_IN_SAVE", std::to_string(stop_in_save)}};
}

TrainingLog check_training(const TrainingPlan& plan) {
  std::map<Key, Begun> begun;
  std::map<Key, Committed> committed;
  std::set<std::int64_t> generations;
  TrainingLog result;
  for (const auto& file : std::filesystem::directory_iterator(plan.folder)) {
    std::ifstream log(file.path());
    for (std::string line; std::getline(log, line);) {
      std::istringstream words(line);
      std::string kind;
      std::int64_t epoch = 0, step = 0, generation = 0;
      int rank = 0;
      words >> kind >> epoch >> step >> generation >> rank;
      const Key key{epoch, step, generation};
      if (kind == "begin") {
        Begun& one = begun[key];
        words >> one.size;
        std::vector<int>& samples = one.samples[rank];
        samples.clear();
        for (int sample = 0; words >> sample;) samples.push_back(sample);
      } else if (kind == "commit") {
        std::string hash, loss;
        words >> hash >> loss;
        committed[key].hashes.insert(hash);
        if (rank == 0) committed[key].loss = loss;
        generations.insert(generation);
      } else if (kind == "end") {
        result.epochs = std::max(result.epochs, static_cast<int>(epoch) + 1);
      }
    }
  }

  result.generations = static_cast<int>(generations.size());
  find_splits(committed, &result.problems);
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> last_generation;  // of each step
  for (const auto& [key, one] : committed) {
    const auto& [epoch, step, generation] = key;
    if (one.hashes.size() != 1) {
      result.problems.push_back(fmt::format("step {} of generation {}: {} different hashes of the parameters", step,
                                            generation, one.hashes.size()));
    }
    last_generation[{epoch, step}] = generation;  // keys come in order
  }
  std::map<std::int64_t, std::map<int, int>> used;  // by epoch: how often each sample
  for (const auto& [where, generation] : last_generation) {
    const auto& [epoch, step] = where;
    const Begun& one = begun[{epoch, step, generation}];
    if (static_cast<int>(one.samples.size()) != one.size) {
      result.problems.push_back(
          fmt::format("step {} of generation {} was committed, but only {} of its {} ranks began it", step, generation,
                      one.samples.size(), one.size));
    }
    for (const auto& [rank, samples] : one.samples) {
      for (const int sample : samples) ++used[epoch][sample];
    }
    result.losses[step] = committed[{epoch, step, generation}].loss;
    result.hashes[step] = *committed[{epoch, step, generation}].hashes.begin();
  }
  result.steps = static_cast<std::int64_t>(last_generation.size());
  for (int epoch = 0; epoch < result.epochs; ++epoch) {
    int lost = 0, repeated = 0;
    for (int sample = 0; sample < plan.samples; ++sample) {
      lost += used[epoch][sample] == 0 ? 1 : 0;
      repeated += used[epoch][sample] > 1 ? 1 : 0;
    }
    if (lost + repeated > 0) {
      result.problems.push_back(
          fmt::format("epoch {}: {} samples were lost, {} used more than once", epoch, lost, repeated));
    }
  }
  return result;
}

}  // namespace lockstep::testing
