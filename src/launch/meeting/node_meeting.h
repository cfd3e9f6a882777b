// How the launchers of a job's nodes agree on who takes part and which ranks they start. The seam between
// the supervision of one node's processes and the meeting of several nodes.
//
// A *round* is one life of the job's processes, between two restarts. Used by one thread; what comes from
// other nodes is taken up by poll(), which never blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

// What a node says of itself.
struct NodeRecord {
  std::string id;    // fresh and random for every launcher process
  std::string host;  // for people
  std::int64_t pid = 0;
  int nproc = 1;                      // ranks that it starts
  std::string address;                // where its standby store listens, "host:port"; empty without one
  std::optional<int> node_rank = {};  // --node-rank, where given
  std::uint16_t rank_port = 0;        // kept free for rank 0, where the ranks serve their store themselves
};

// What a node's launcher knows at the start of a round.
struct Round {
  int number = 0;
  int restarts = 0;  // of the job so far, all nodes together
  int node_rank = 0;
  int first_rank = 0;  // of this node's ranks
  int world_size = 0;
  std::string master_addr;  // a store that is already served
  std::uint16_t master_port = 0;
  std::vector<NodeRecord> nodes;  // by node rank
};

// A rank's end, as its launcher saw it.
struct RankFailure {
  int rank = -1;
  int local_rank = -1;
  int node_rank = 0;
  std::string host;
  std::int64_t pid = 0;
  int exit_code = 0;  // where signal is 0
  int signal = 0;
  std::int64_t time_ns = 0;  // CLOCK_REALTIME when it ended
  std::string reason;        // exception text or backtrace, may be empty
  std::string log;           // where its output is, may be empty
};

struct MeetingEvent {
  enum class Kind : std::uint8_t {
    none,
    rank_failed,    // on another node: `failure`; all stop, and then next_round() or the end
    node_lost,      // `node` is gone, with its ranks
    node_waiting,   // `node` came late and would like to take part in the next round
    node_finished,  // all ranks of `node` have ended well
  };
  Kind kind = Kind::none;
  RankFailure failure = {};
  NodeRecord node = {};
};

class NodeMeeting {
 public:
  virtual ~NodeMeeting() = default;

  // Blocks until the nodes of the next round are known. timed_out: too few came, and who did; mismatch: this
  // node's options differ from the others'; aborted: another node ended the job, with the reason.
  // `stop_requested` is asked at least every 100 ms; true ends the wait with `aborted`.
  virtual Result<Round> next_round(Deadline deadline, bool (*stop_requested)()) = 0;
  // One of this node's ranks failed: every node learns of it.
  virtual Status report_failure(const RankFailure& failure) = 0;
  // All of this node's ranks have ended well.
  virtual Status report_finished() = 0;
  // The next thing that happened elsewhere; kind none if nothing did. Never blocks for longer than a look at
  // a store that answers; the loss of the serving node is handled here.
  virtual MeetingEvent poll() = 0;
  // Counts one restart for the whole job; the number of restarts so far, this one included.
  virtual Result<int> count_restart() = 0;
  // The job is over for all nodes; `reason` for those that still wait.
  virtual void end_job(const std::string& reason) = 0;

  // For elastic jobs: the newest roster (an opaque text whose first line is its number) that any node has.
  virtual Status publish_roster(const std::string& roster) = 0;
  virtual std::optional<std::string> newest_roster() = 0;
};

}  // namespace lockstep::launch
