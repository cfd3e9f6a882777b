// Messages between the driver and each worker process: length-prefixed, over a Unix stream
// socket. A worker that waits for its next command blocks in read(2) and uses no CPU.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "bench/worker/operation.h"

namespace lockstep::bench {

// The error that ends a benchmark; what() is a message for the user.
struct BenchError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class CommandKind : std::uint8_t { run, quit };

struct Command {
  CommandKind kind = CommandKind::run;
  Collective collective = Collective::all_reduce;
  DType dtype = DType::f32;
  Memory memory = Memory::private_memory;
  bool cold = true;
  std::uint64_t bytes = 0;
  std::uint32_t iterations = 0;  // timed ones
  std::uint32_t warmup = 0;      // before them: checked, not timed
};

// One rank's answer to a run. `error` is empty, or the reason why there is no result.
struct Reply {
  std::string error;
  std::uint64_t wrong = 0;
  double cpu_seconds = 0;              // of the whole process, in the timed parts
  std::vector<double> seconds;         // per timed iteration, from the common start to this rank's end
  std::vector<std::uint64_t> digests;  // of each output that must be the same bits on every rank
};

struct Hello {
  std::int32_t rank = 0;
  std::int32_t pid = 0;
};

// Owns a connected socket. Not thread-safe. Every call throws BenchError if the other end has closed the connection.
class Channel {
 public:
  explicit Channel(UniqueFd fd) : fd_(std::move(fd)) {}
  static Channel connect(const std::string& path);

  void send(const Hello& hello);
  void send(const Command& command);
  void send(const Reply& reply);
  // Block until a whole message has arrived.
  Hello receive_hello();
  Command receive_command();
  Reply receive_reply();

  int fd() const { return fd_.get(); }

 private:
  void write_message(const std::vector<char>& body);
  std::vector<char> read_message();

  UniqueFd fd_;
};

// A listening socket in the file system, so that it can be reached from every network namespace.
UniqueFd listen_at(const std::string& path);

}  // namespace lockstep::bench
