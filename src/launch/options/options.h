// The options of `lockstep run`: torchrun's under torchrun's names, and Lockstep's own.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/net/socket.h"
#include "lockstep/base/status.h"
#include "rendezvous/environment.h"

namespace lockstep::launch {

// Which of a rank's streams something applies to, in torchrun's numbers: 1 stdout, 2 stderr, 3 both.
struct StreamChoice {
  int all = 0;
  std::map<int, int> by_local_rank = {};  // takes precedence over `all`

  bool contains(int local_rank, int stream) const;  // stream: 1 or 2
  bool empty() const { return all == 0 && by_local_rank.empty(); }
};

enum class ServeStore : std::uint8_t { automatic, yes, no };

struct RunOptions {
  bool help = false;  // only the help was requested; nothing else is checked

  int nproc = 1;
  int min_nodes = 1;
  int max_nodes = 1;
  std::optional<int> node_rank = {};
  // Where nodes meet (--rdzv-endpoint a:1,b:2: the second if the first is lost), and where the ranks of a single node
  // do. Empty: not given, a single node. Port 0: any free one.
  std::vector<HostPort> endpoints = {};
  std::string witness = {};     // "host:port" of `lockstep witness`; empty: none
  std::string local_addr = {};  // at which other nodes reach this one; empty: automatic
  std::string run_id = {};      // empty: not given
  std::string role = "default";

  bool elastic = false;
  int min_ranks = 1;
  int max_restarts = 0;
  std::chrono::milliseconds monitor_interval{100};
  std::chrono::milliseconds start_timeout{600'000};
  std::chrono::milliseconds last_call_timeout{30'000};  // with MIN:MAX: how long to wait for more nodes
  std::chrono::milliseconds node_timeout{10'000};       // a node that is silent this long is lost
  std::chrono::milliseconds shutdown_timeout{30'000};

  std::string log_dir = {};
  std::string metrics = {};  // folder for the curves; empty: none
  std::string trace = {};    // file for the timeline; empty: none
  // Where to serve the dashboard, "host:port"; empty: at the default place. Not set: nowhere.
  std::optional<std::string> dashboard = {};
  StreamChoice redirects = {};              // to files only
  StreamChoice tee = {};                    // to files and to the console
  std::vector<int> shown_local_ranks = {};  // whose output is printed; empty: all
  bool prefix = true;
  bool bind = true;

  ServeStore serve_store = ServeStore::automatic;
  bool module = false;      // the program is the name of a Python module
  bool no_python = false;   // execute the program itself, even if it is called *.py
  std::string python = {};  // empty: python3

  std::string program = {};
  std::vector<std::string> arguments = {};
};

// `arguments` are those after "run". Options that they do not set are taken from PET_<NAME>. Everything after the
// program is passed to the program. Pure. Invalid input is invalid_argument with a one-line message. `cores`: the value
// of
// --nproc-per-node auto.
Result<RunOptions> parse_run_options(const std::vector<std::string>& arguments, const Environment& environment,
                                     int cores);

// What `lockstep run --help` prints.
std::string run_help();

}  // namespace lockstep::launch
