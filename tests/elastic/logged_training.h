// A small elastic training that logs what it does, and what its log must say afterwards.
//
// Every process appends to a file of its own in a folder: "begin <epoch> <step> <generation> <rank> <size> <sample>..."
// before it computes a step, and "commit <epoch> <step> <generation> <rank> <hash of parameters> <loss>" after it. A
// step that some process committed was begun by all ranks of its generation, so the begin lines say which samples it
// used. Where a step was committed in two generations, the later one counts: whoever committed the earlier one was
// lost.
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
  int heartbeat_ms = 10000;
  int silence_ms = 5000;
  int shortage_ms = 0;         // 0: the default
  std::string snapshots = {};  // a folder: goes on from what is there, and saves there when it gives up

  // From and to variables: LOG_FOLDER, SAMPLES, BATCH, EPOCHS, FINISH, STEP_MS, HEARTBEAT_MS, SILENCE_MS,
  // SHORTAGE_MS, SNAPSHOTS.
  static TrainingPlan from_environment();
  std::map<std::string, std::string> variables() const;
};

// Trains in this process; the exit code. Defined where torch is at hand.
int run_logged_training(const TrainingPlan& plan);

struct TrainingLog {
  std::vector<std::string> problems;  // empty: everything holds
  std::int64_t steps = 0;             // committed
  int epochs = 0;                     // completed
  int generations = 0;
  std::map<std::int64_t, std::string> losses;  // by step, of rank 0, as hexadecimal floats
  std::map<std::int64_t, std::string> hashes;  // by step
};
// Reads all logs in the folder. Problems: parameters that differ between ranks after a step, a sample that was lost or
// used twice by committed steps of an epoch that was completed.
TrainingLog check_training(const TrainingPlan& plan);

}  // namespace lockstep::testing
