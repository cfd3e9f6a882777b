// How the launchers of a job's nodes agree on which nodes take part and which ranks they start. The interface between
// the supervision of one node's processes and the coordination of several nodes.
//
// A *round* is the time between two restarts of the job's processes. Used by one thread; poll(), which never blocks,
// returns what happened on other nodes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

// The identity of a node.
struct NodeRecord {
  std::string id;    // fresh and random for every launcher process
  std::string host;  // human-readable
  std::int64_t pid = 0;
  int nproc = 1;                      // ranks that it starts
  std::string address;                // where its standby store listens, "host:port"; empty without one
  std::optional<int> node_rank = {};  // --node-rank, if given
  std::uint16_t rank_port = 0;        // reserved for rank 0, if the ranks serve their own store
  std::int64_t started = 0;           // with `pid`, the launcher for all time (base/process_state.h)
  std::string attester = {};          // where its guard attests its end, "host:port" (membership/attester.h)
};

// A round from the view of one node's launcher.
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

// The end of a rank as its launcher observed it.
struct RankFailure {
  int rank = -1;  // -1 in an elastic job, where it changes with each generation: its processes are named by local rank
  int local_rank = -1;
  int node_rank = 0;
  std::string host;
  std::int64_t pid = 0;
  int exit_code = 0;  // valid if signal is 0
  int signal = 0;
  std::int64_t time_ns = 0;  // CLOCK_REALTIME when it ended
  std::string reason;        // exception text or backtrace, may be empty
  std::string log;           // where its output is, may be empty
};

struct MeetingEvent {
  enum class Kind : std::uint8_t {
    none,
    rank_failed,    // on another node: `failure`; all stop, and then next_round() or the end
    node_lost,      // `node` is lost, with its ranks
    node_waiting,   // `node` arrived late and waits for the next round
    node_finished,  // all ranks of `node` have succeeded
  };
  Kind kind = Kind::none;
  RankFailure failure = {};
  NodeRecord node = {};
};

class NodeMeeting {
 public:
  virtual ~NodeMeeting() = default;

  // Blocks until the nodes of the next round are known. timed_out: too few nodes arrived; the message lists them.
  // mismatch: this node's options differ from the others'. aborted: another node ended the job, with the reason.
  // `stop_requested` is called at least every 100 ms; true ends the wait with `aborted`.
  virtual Result<Round> next_round(Deadline deadline, bool (*stop_requested)()) = 0;
  // Reports the failure of one of this node's ranks to all nodes.
  virtual Status report_failure(const RankFailure& failure) = 0;
  // Reports that all of this node's ranks have succeeded.
  virtual Status report_finished() = 0;
  // The next event from another node; kind none if there is none. Never blocks for longer than one read from a store
  // that answers; handles the loss of the serving node.
  virtual MeetingEvent poll() = 0;
  // Counts one restart for the whole job; the number of restarts so far, this one included.
  virtual Result<int> count_restart() = 0;
  // Ends the job on all nodes; those that still wait get `reason`.
  virtual void end_job(const std::string& reason) = 0;

  // For elastic jobs: the newest roster (an opaque text whose first line is its number) that any node has.
  virtual Status publish_roster(const std::string& roster) = 0;
  virtual std::optional<std::string> newest_roster() = 0;
};

}  // namespace lockstep::launch
