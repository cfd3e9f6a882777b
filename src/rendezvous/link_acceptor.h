// Accepts the connections of other ranks, in a thread of its own: while the group forms, and as long as it exists,
// because links are made when they are first needed.
//
// Every connection must pass the handshake for this group, this rank and an existing link. A connection that fails it,
// or does not complete it within 5 s, is dropped and logged. No connection delays another. Connections over Unix
// sockets from other users are refused at once; those over TCP have a budget (base/net/stranger_budget.h). While the
// system cannot provide more connections, they wait.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/net/accept_channel.h"
#include "base/net/refusal_log.h"
#include "base/net/stranger_budget.h"
#include "base/unique_fd.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "rendezvous/links.h"

namespace lockstep {

class LinkAcceptor {
 public:
  // Starts the thread on a listening Unix socket. resource_exhausted if the system has no thread or
  // descriptor left.
  static Result<std::unique_ptr<LinkAcceptor>> start(std::shared_ptr<const LinkContext> context,
                                                     UniqueFd unix_listener);
  // Stops the thread and closes the listeners and the links that were not taken.
  ~LinkAcceptor();
  LinkAcceptor(const LinkAcceptor&) = delete;
  LinkAcceptor& operator=(const LinkAcceptor&) = delete;

  // Accepts on a TCP socket too.
  void add_listener(UniqueFd tcp_listener);

  // Waits until all of `names` are connected; timed_out at the deadline.
  Status wait_for(const std::vector<LinkName>& names, Deadline deadline);
  // Why connections have to wait now, if the system cannot provide more.
  Status accept_error();
  // Those of `names` that are not connected yet.
  std::vector<LinkName> missing(const std::vector<LinkName>& names);
  // Closes the links that `peer` has made over Unix sockets.
  void drop_unix_links_of(int peer);
  // A link that wait_for found.
  Channel take(const LinkName& name);
  // See LinkSource.
  LinkSource::Links take_all(const std::string& role);
  void set_listener(const std::string& role, std::function<void()> listener);

 private:
  // A connection that is not authenticated yet.
  struct Candidate {
    Candidate(LinkAcceptor& owner, UniqueFd connection, bool over_unix);

    const int number;  // of the descriptor, also after it was given away
    bool is_unix;
    ChannelAcceptor acceptor;
    Channel channel;  // once accepted, until it is confirmed
    Deadline deadline = Deadline::after(kHandshakeTimeout);
  };
  enum class Progress { pending, ended };

  LinkAcceptor(std::shared_ptr<const LinkContext> context, UniqueFd unix_listener, UniqueFd wake);
  void run();
  int poll_timeout_ms() const;
  bool accepts(bool is_unix) const;
  void accept_all(int listener, bool is_unix);
  void add(UniqueFd fd, bool is_unix);
  void evict_excess(int newest);
  // Removes it, unless it turns out to have sent its first message.
  void make_room(std::list<Candidate>::iterator candidate);
  void evict(std::list<Candidate>::iterator candidate);
  void lack_descriptors(const Status& why);
  void must_wait(const Status& why);
  std::list<Candidate>::iterator candidate_with(int fd);
  void remove(std::list<Candidate>::iterator candidate);
  Progress advance(Candidate& candidate);
  void finish(Candidate& candidate);
  void refused(const Candidate& candidate, const Status& why);
  Status check_identity(const ConnectionIdentity& identity, const Candidate& candidate);
  void wake() const;
  void adopt_new_listener();
  void drop_expired();

  // Constant after construction.
  const std::shared_ptr<const LinkContext> context_;
  const UniqueFd wake_;

  AcceptRules rules_;  // owned by the thread; the keys are made when the first TCP listener is added
  // Owned by the thread.
  std::vector<std::pair<UniqueFd, bool>> listeners_;  // and whether it is a Unix socket
  std::list<Candidate> candidates_;
  StrangerBudget strangers_;  // the candidates over TCP
  RefusalLog refusals_;
  Deadline accept_again_ = Deadline::at(Deadline::Clock::time_point::min());

  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  UniqueFd new_listener_;
  struct Accepted {
    Channel channel;
    bool is_unix;
  };
  std::map<LinkName, Accepted> links_;
  std::map<std::string, std::function<void()>> listeners_of_;  // by role
  Status accept_error_;                                        // why the last connection could not be accepted

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep
