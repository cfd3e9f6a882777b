#include "launch/process/stop_ranks.h"

#include <fmt/format.h>

#include <csignal>

#include "base/seconds.h"

namespace lockstep::launch {
namespace {

// Ranks that a debugger or the kernel holds may take a while even then.
constexpr std::chrono::seconds kKillNotice{10};

void take(RankSet& ranks, Deadline deadline, const StopSignals& signals, std::vector<RankEnd>& ends) {
  for (auto& end : ranks.wait(deadline, signals)) ends.push_back(std::move(end));
}

}  // namespace

void stop_ranks(RankSet& ranks, int signal, std::chrono::milliseconds grace, Console& console,
                const StopSignals& signals, std::vector<RankEnd>& ends) {
  if (ranks.running() == 0) return;
  ranks.signal_all(signal);
  ranks.signal_all(SIGCONT);  // a stopped rank cannot end otherwise
  const Deadline grace_end = Deadline::after(grace);
  while (ranks.running() > 0 && !grace_end.expired() && !StopSignals::impatient())
    take(ranks, grace_end, signals, ends);
  if (ranks.running() == 0) return;
  console.say(StopSignals::impatient() ? fmt::format("{} killed immediately", ranks.running_names())
                                       : fmt::format("{} did not end within {:.1f} s of {}; killed",
                                                     ranks.running_names(), seconds(grace), describe_end(0, signal)));
  ranks.signal_all(SIGKILL);
  while (ranks.running() > 0) {
    take(ranks, Deadline::after(kKillNotice), signals, ends);
    ranks.signal_all(SIGKILL);
  }
}

}  // namespace lockstep::launch
