// Accepts the connections of higher ranks, in a thread of its own, while this rank connects to the
// lower ones and exchanges values with the others in the store.
//
// Every connection must pass the handshake for this group, this rank and an existing link. A connection that fails it,
// or does not complete it within 5 s, is dropped and logged. No connection delays another.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/net/auth.h"
#include "base/unique_fd.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "rendezvous/links.h"

namespace lockstep {

class LinkAcceptor {
 public:
  // Starts the thread on a listening Unix socket. resource_exhausted if the system has no thread or
  // descriptor left.
  static Result<std::unique_ptr<LinkAcceptor>> start(LinkContext context, UniqueFd unix_listener);
  // Stops the thread and closes the listeners and the links that were not taken.
  ~LinkAcceptor();
  LinkAcceptor(const LinkAcceptor&) = delete;
  LinkAcceptor& operator=(const LinkAcceptor&) = delete;

  // Accepts on a TCP socket too.
  void add_listener(UniqueFd tcp_listener);

  // Waits until all of `names` are connected; timed_out at the deadline. Fails at once if the system cannot provide
  // more connections.
  Status wait_for(const std::vector<LinkName>& names, Deadline deadline);
  // Those of `names` that are not connected yet.
  std::vector<LinkName> missing(const std::vector<LinkName>& names);
  // Closes the links of `peer` so far.
  void drop_links_of(int peer);
  // A link that wait_for found.
  UniqueFd take(const LinkName& name);

 private:
  // A connection that is not authenticated yet.
  struct Candidate {
    Candidate(LinkAcceptor& owner, UniqueFd connection, bool over_unix);

    UniqueFd fd;
    bool is_unix;
    IdentityCheck check;
    AcceptorHandshake handshake;
    Deadline deadline = Deadline::after(kHandshakeTimeout);
  };
  enum class Progress { pending, ended };

  LinkAcceptor(LinkContext context, UniqueFd unix_listener, UniqueFd wake);
  void run();
  void accept_all(int listener, bool is_unix);
  Progress advance(Candidate& candidate);
  void finish(Candidate& candidate);
  Status check_identity(const ConnectionIdentity& identity, const Candidate& candidate);
  void wake() const;
  void adopt_new_listener();
  void drop_expired();
  void stop_with(const Status& error);

  // Constant after construction.
  const LinkContext context_;
  const UniqueFd wake_;

  // Owned by the thread.
  std::vector<std::pair<UniqueFd, bool>> listeners_;  // and whether it is a Unix socket
  std::list<Candidate> candidates_;

  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  UniqueFd new_listener_;
  std::map<LinkName, UniqueFd> links_;
  Status error_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep
