// The part that all worker programs share: one process is one rank of one engine. It connects to
// the driver, sleeps until told what to run, runs and times it, checks every result, and answers.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/worker/operation.h"

namespace lockstep::bench {

struct WorkerConfig {
  std::string socket;              // the driver
  std::string shared;              // memory for the start line; for the limit also all arenas
  std::string rendezvous;          // a folder or address in which the engine's ranks meet
  std::string address;             // this host's address, in the mode with several hosts
  std::vector<std::string> hosts;  // the addresses of all hosts, likewise
  int rank = -1;
  int size = 0;
  std::vector<int> cores;   // one per rank, or empty: not pinned
  std::size_t arena = 0;    // bytes of buffers per rank
  bool registered = false;  // whether operations on registered memory will be asked for
};

// Reads "--name value" pairs; the rank may also come from the environment that mpirun sets.
// Pins the process to its core. Throws BenchError.
WorkerConfig configure_worker(int argc, char** argv);

// What a worker program provides. Any failure is an exception.
class Engine {
 public:
  virtual ~Engine() = default;
  // Empty, or why this engine cannot run it: "Open MPI has no f16".
  virtual std::string refusal(Collective collective, DType dtype) const = 0;
  // Memory of the kind asked for, ready to use; lives as long as the engine.
  virtual std::byte* allocate(std::size_t bytes, Memory memory);
  // Prepares the call; what is returned is timed. It is called once, on the same thread.
  virtual std::function<void()> bind(const Operation& operation) = 0;
  // How many operations the bound call stands for; its time is divided by this.
  virtual double operations_per_call(const Operation&) const { return 1; }
  // Called after the timed part and before the check, on every rank.
  virtual void settle(const Operation&) {}

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* data) const;
  };
  std::vector<std::unique_ptr<std::byte, Unmap>> private_memory_;
};

// Serves the driver until it says quit (0) or something breaks (1, after a line on stderr).
int run_worker(const WorkerConfig& config, Engine& engine);

// main() of a worker: configures, makes the engine, runs it; failures end in a line on stderr.
int worker_main(int argc, char** argv, const std::function<std::unique_ptr<Engine>(const WorkerConfig&)>& make_engine);

}  // namespace lockstep::bench
