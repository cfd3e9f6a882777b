// A witness: a process outside of the hosts of a job that breaks ties. If exactly half of a generation's members are
// left, its witness decides which half continues, instead of the first member.
//
// It keeps one *register* per job, named by the generations that use it: the newest generation that it voted for. A
// leader reads the register, counts what it found among the accepted generations (succession.h), and replaces it by its
// own decision with one atomic exchange. So a witness votes for one of several decisions, and the leader of each later
// one knows of it. Registers are in memory: their names begin with an id that is fresh for every witness process, so a
// witness that was restarted has no vote until a generation names it.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"
#include "membership/records.h"
#include "store/tcp/tcp_store_server.h"

namespace lockstep::membership {

// Serves until destroyed.
class Witness {
 public:
  static Result<std::unique_ptr<Witness>> open(StoreServerOptions options);
  std::string address() const { return server_->address(); }

 private:
  explicit Witness(std::unique_ptr<TcpStoreServer> server) : server_(std::move(server)) {}
  std::unique_ptr<TcpStoreServer> server_;
};

// What a witness has in its registers.
struct WitnessView {
  std::string id = {};
  std::map<std::string, Generation> votes = {};  // by register; one without an entry has not been used yet
};

// `address`: "host:port". An address that refuses connections fails at once.
Result<WitnessView> ask_witness(const std::string& address, const Secret& secret, Deadline deadline);
// Asks the witness to vote for `generation`. aborted: the register is no longer as in `seen`.
Status request_vote(const std::string& address, const Secret& secret, const WitnessView& seen,
                    const std::string& witness_register, const Generation& generation, Deadline deadline);

}  // namespace lockstep::membership
