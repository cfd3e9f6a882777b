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

enum Wish : std::int64_t { nothing = 0, regroup = 1, finish = 2 };

std::chrono::milliseconds milliseconds_from(const char* name, std::chrono::milliseconds otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::chrono::milliseconds(std::atoi(text));
}

elastic::ParticipantOptions options() {
  elastic::ParticipantOptions base;
  base.init.group.init_timeout = 60s;
  base.init.group.timeout = 60s;
  base.init.group.peer_timeout = milliseconds_from("HEARTBEAT_MS", 10s);
  base.policy.silent_timeout = milliseconds_from("SILENCE_MS", 5s);
  base.policy.quorum_timeout = milliseconds_from("SHORTAGE_MS", 60s);
  return elastic::ParticipantOptions::from_environment(base);
}

// One generation, until it is over. True: the job is done.
bool live(Participant& participant, Participant::RankStart& life, std::int64_t& step) {
  const char* const finish_file = std::getenv("FINISH");
  if (life.transfer) {
    std::int64_t theirs = step;
    life.group->broadcast(std::span(&theirs, 1), life.source);
    step = theirs;
  }
  print_mark(
      fmt::format("life {} rank {} of {} step {}", life.generation, life.group->rank(), life.group->size(), step));
  while (true) {
    std::this_thread::sleep_for(1ms);  // the computation
    // wish, step, -step: all must be at the same one
    std::array<std::int64_t, 3> round = {nothing, step, -step};
    if (life.group->rank() == 0 && participant.newcomers_wait()) round[0] = regroup;
    if (life.group->rank() == 0 && ::access(finish_file, F_OK) == 0) round[0] = finish;
    participant.begin_round();
    life.group->all_reduce(std::span(round), {.op = ReduceOp::max});
    participant.end_round();
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
    std::optional<Participant::RankStart> life = participant.next_generation(step);
    if (!life) {
      print_mark("finished without me");
      return 0;
    }
    if (!life->has_state) step = -1;
    try {
      if (!live(participant, *life, step)) continue;
      life->group->barrier();
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
