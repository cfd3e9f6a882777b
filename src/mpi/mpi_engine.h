// MPI in this process: one thread that makes all calls of MPI.
//
// MPI is started
// - by the engine, if the program has not: on the progress thread, which then also ends it when the process exits (MPI
//   can start only once in a process). MPI_THREAD_FUNNELED is enough, because no other thread calls MPI.
// - by the program, before: then the progress thread is not the one that started MPI, so at least
//   MPI_THREAD_SERIALIZED is needed, and the program must not call MPI while a group exists; with MPI_THREAD_MULTIPLE
//   it may. The engine never finalises MPI then; its thread ends with the last group. A program that finalises
//   MPI while a group exists ends the group: the thread stops before MPI_Finalize does anything.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "mpi/channel_operation.h"
#include "mpi/plugin.h"
#include "mpi/progress_thread.h"
#include "rendezvous/member_record.h"

namespace lockstep::mpi {

class MpiEngine {
 public:
  // The engine of this process: the existing one, or a new one. Loads the plug-in and starts MPI, which waits for all
  // processes of the job: timed_out if they do not all arrive. invalid_argument: the thread level is too low; suggests
  // what to do.
  static Result<std::shared_ptr<MpiEngine>> acquire(const std::string& backend, const Environment& environment,
                                                    Deadline deadline);
  explicit MpiEngine(Plugin plugin)
      : plugin_(std::move(plugin)), thread_([this] {
          if (!failed_ && has_world_) mpi().advance();
        }) {}
  // Stops the thread. Only if the program started MPI: else the engine exists as long as the process.
  ~MpiEngine();
  MpiEngine(const MpiEngine&) = delete;
  MpiEngine& operator=(const MpiEngine&) = delete;

  const lockstep_mpi_plugin& mpi() const { return *plugin_.table; }
  const lockstep_mpi_world& world() const { return world_; }

  // Runs `call` on the progress thread and waits. Ok if it returned 0, else MPI's error message, with `what` before
  // it. timed_out: it may still run, so it must own what it uses. closed: the engine has stopped.
  // `hopeless` (may be empty) is called at intervals; if it returns true, the wait ends.
  Status run(std::string_view what, std::function<int()> call, Deadline deadline,
             const std::function<bool()>& hopeless = {});
  // A copy of MPI_COMM_WORLD. All processes of the job call it.
  Result<lockstep_mpi_comm*> copy_world(Deadline deadline);

  ProgressThread& thread() { return thread_; }
  // MPI will neither be used again nor finalised: a process was lost or requests are left behind, and MPI_Finalize may
  // wait for ever.
  void set_failed() { failed_ = true; }
  // A group has failed here, perhaps because of a worse failure elsewhere: MPI_Finalize has only a few seconds.
  void set_doubtful() { doubtful_ = true; }
  // One of the two, depending on the reason.
  void note(const Status& failure);
  // The processes of the job, so that MPI_Finalize does not wait for one that has ended.
  void set_processes(MemberRecord self, std::vector<MemberRecord> all);
  // Keeps the memory of requests that MPI still holds, for ever.
  void abandon(std::vector<ChannelOperation> operations);
  // Keeps the communicator of a group that has failed: MPI is not called for it any more.
  static void abandon(lockstep_mpi_comm* communicator);

 private:
  Status start(Deadline deadline);
  Status check_threads() const;
  static void at_exit();
  static void at_finalize();
  void finish_at_exit();
  bool a_process_has_ended();

  const Plugin plugin_;
  lockstep_mpi_world world_{};  // constant after start(), which the progress thread does not wait for
  std::atomic<bool> failed_{false};
  std::atomic<bool> doubtful_{false};
  bool has_world_ = false;  // owned by the progress thread: MPI has started, and moves bytes only while it is called

  std::mutex mutex_;
  MemberRecord self_;                    // guarded by mutex_
  std::vector<MemberRecord> processes_;  // guarded by mutex_

  ProgressThread thread_;  // last: it uses what is above
};

}  // namespace lockstep::mpi
