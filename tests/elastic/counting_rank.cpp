#include "elastic/counting_rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <thread>

#include "elastic/participant.h"
#include "support/process_set.h"

namespace lockstep::testing {
namespace {

using elastic::Participant;
using namespace std::chrono_literals;

enum Request : std::int64_t { nothing = 0, regroup = 1, finish = 2 };

std::chrono::milliseconds milliseconds_from(const char* name, std::chrono::milliseconds otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::chrono::milliseconds(std::atoi(text));
}

elastic::ParticipantOptions options() {
  elastic::ParticipantOptions base;
  base.init.group.init_timeout = 60s;
  base.init.group.timeout = 60s;
  base.init.group.peer_timeout = milliseconds_from("PEER_TIMEOUT_MS", 10s);
  base.policy.silent_timeout = milliseconds_from("SILENT_TIMEOUT_MS", 5s);
  base.policy.quorum_timeout = milliseconds_from("QUORUM_TIMEOUT_MS", 60s);
  return elastic::ParticipantOptions::from_environment(base);
}

// Runs one generation until it ends. True: the job is done.
bool run_generation(Participant& participant, Participant::RankStart& start, std::int64_t& step) {
  const char* const finish_file = std::getenv("FINISH");
  if (start.transfer) {
    std::int64_t theirs = step;
    start.group->broadcast(std::span(&theirs, 1), start.source);
    step = theirs;
  }
  print_mark(fmt::format("generation {} rank {} of {} step {}", start.generation, start.group->rank(),
                         start.group->size(), step));
  while (true) {
    std::this_thread::sleep_for(1ms);  // the computation
    // request, step, -step: all must be at the same one
    std::array<std::int64_t, 3> round = {nothing, step, -step};
    if (start.group->rank() == 0 && participant.newcomers_wait()) round[0] = regroup;
    if (start.group->rank() == 0 && ::access(finish_file, F_OK) == 0) round[0] = finish;
    start.group->all_reduce(std::span(round), {.op = ReduceOp::max});
    if (round[1] != step || round[2] != -step) {
      throw Error({StatusCode::internal, fmt::format("ranks are at steps {} to {}", -round[2], round[1])});
    }
    ++step;
    if (round[0] == finish) return true;
    if (round[0] == regroup) return false;
  }
}

}  // namespace

int run_counting_rank() {
  Participant participant(options());
  std::int64_t step = participant.is_newcomer() ? -1 : 0;
  while (true) {
    std::optional<Participant::RankStart> start = participant.next_generation(step);
    if (!start) {
      print_mark("finished without me");
      return 0;
    }
    if (!start->has_state) step = -1;
    try {
      if (!run_generation(participant, *start, step)) continue;
      start->group->barrier();
      participant.finish();
      print_mark(fmt::format("finished at step {}", step));
      return 0;
    } catch (const Error& error) {
      if (error.code() != StatusCode::peer_lost && error.code() != StatusCode::aborted) throw;
      print_mark(fmt::format("lost at step {}: {}", step, error.what()));
    }
  }
}

}  // namespace lockstep::testing
