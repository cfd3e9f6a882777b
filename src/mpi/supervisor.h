// Publishes this rank's progress in the store, and finds out for which ranks a collective waits.
//
// MPI provides neither. One thread for all groups of a job, which wakes a few times a second; the progress thread never
// waits for the store.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/store/store.h"
#include "mpi/channel.h"
#include "mpi/reports.h"

namespace lockstep::mpi {

class Supervisor {
 public:
  // `who` describes this process in the messages of other ranks: "host node7, pid 4711".
  Supervisor(std::shared_ptr<Store> store, std::string who);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  struct Group {
    std::string key;   // equal on all ranks of the group, and no other's
    std::string name;  // for messages
    int rank = 0;
    int size = 1;
    std::shared_ptr<Channel> channel;
  };
  void add(Group group);
  // Publishes that this rank has left the group.
  void remove(const std::shared_ptr<Channel>& channel);
  // A deadline has passed: check soon. Never blocks.
  void wake();

 private:
  struct Watched {
    Group group;
    std::string published;
  };
  void run();
  void publish(Watched& watched, bool left);
  void check(const Watched& watched);

  const std::shared_ptr<Store> store_;
  const std::string who_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;                            // guarded by mutex_
  bool stopping_ = false;                         // guarded by mutex_
  std::vector<std::shared_ptr<Watched>> groups_;  // guarded by mutex_
  std::mutex publishing_;                         // one report at a time, so that the last one stays
  std::thread thread_;
};

}  // namespace lockstep::mpi
