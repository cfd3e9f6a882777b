// A small elastic training that logs what it does, and the checks of its log.
//
// Every process appends to a file of its own in a folder: "begin <epoch> <step> <generation> <rank> <size> <sample>..."
// before it computes a step, and "commit <epoch> <step> <generation> <rank> <hash of parameters> <loss>" after it. A
// step that some process committed was started by all ranks of its generation, so the begin lines show which samples it
// used. If a step was committed in two generations, the later one counts: the processes that committed the earlier one
// were lost.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::testing {

struct TrainingPlan {
  std::string folder;  // of the logs
  int samples = 240;
  int batch = 4;
  int epochs = 3;  // 0: until the file `finish` exists
  std::string finish = {};
  int step_ms = 0;  // a pause in each step
  int peer_timeout_ms = 10000;
  int silent_timeout_ms = 5000;
  int quorum_timeout_ms = 0;   // 0: the default
  std::string snapshots = {};  // a folder: resumes from its newest snapshot, and saves there when the job gives up
  int save_every = 0;          // steps after which all ranks save there, too; 0: never
  int stop_in_save = 0;  // rank 0 of the first generation stops (SIGSTOP) while it writes the snapshot of this step

  // From and to variables: LOG_FOLDER, SAMPLES, BATCH, EPOCHS, FINISH, STEP_MS, PEER_TIMEOUT_MS, SILENT_TIMEOUT_MS,
  // QUORUM_TIMEOUT_MS, SNAPSHOTS, SAVE_EVERY, STOP_IN_SAVE.
  static TrainingPlan from_environment();
  std::map<std::string, std::string> variables() const;
};

// Trains in this process and returns the exit code. Defined only in targets that link torch.
int run_logged_training(const TrainingPlan& plan);

struct TrainingLog {
  std::vector<std::string> problems;  // empty: all checks passed
  std::int64_t steps = 0;             // committed
  int epochs = 0;                     // completed
  int generations = 0;
  std::map<std::int64_t, std::string> losses;  // by step, of rank 0, as hexadecimal floats
  std::map<std::int64_t, std::string> hashes;  // by step
};
// Reads all logs in the folder. Problems: parameters that differ between ranks after a step, two lineages of steps, a
// sample that was lost or used twice by committed steps of an epoch that was completed.
TrainingLog check_training(const TrainingPlan& plan);

}  // namespace lockstep::testing
