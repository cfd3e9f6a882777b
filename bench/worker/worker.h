// The part that all worker programs share: one process is one rank of one engine. It connects to
// the driver, sleeps until it gets a command, runs and times it, checks every result, and replies.
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
  std::string rendezvous;          // a folder or an address through which the engine's ranks find each other
  std::string address;             // this host's address, in the mode with several hosts
  std::vector<std::string> hosts;  // the addresses of all hosts, likewise
  int rank = -1;
  int size = 0;
  std::vector<int> cores;   // one per rank, or empty: not pinned
  std::size_t arena = 0;    // bytes of buffers per rank
  bool registered = false;  // whether the driver will request operations on registered memory
};

// Reads "--name value" pairs; the rank may also come from the environment that mpirun sets.
// Pins the process to its core. Throws BenchError.
WorkerConfig configure_worker(int argc, char** argv);

// Implemented by each worker program. Failures are exceptions.
class Engine {
 public:
  virtual ~Engine() = default;
  // Empty, or the reason why this engine cannot run it: "Open MPI has no f16".
  virtual std::string refusal(Collective collective, DType dtype) const = 0;
  // Memory of the requested kind, valid as long as the engine exists.
  virtual std::byte* allocate(std::size_t bytes, Memory memory);
  // Prepares the call and returns it; the returned function is timed. It is called once, on the same thread.
  virtual std::function<void()> bind(const Operation& operation) = 0;
  // The number of operations that the bound call performs; its time is divided by this.
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

// Executes the driver's commands until it sends quit (returns 0) or a failure (returns 1, after a line on stderr).
int run_worker(const WorkerConfig& config, Engine& engine);

// main() of a worker: parses the options, creates the engine and runs it; a failure is a line on stderr.
int worker_main(int argc, char** argv, const std::function<std::unique_ptr<Engine>(const WorkerConfig&)>& make_engine);

}  // namespace lockstep::bench
