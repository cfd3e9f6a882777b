// Chaos: an elastic training on three hosts with random faults from a seed. After each fault it must continue within a
// time limit, and at the end no sample may be lost or repeated, no rank may differ, and no process may be left over.
//
//   LOCKSTEP_CHAOS_FAULTS=200 LOCKSTEP_CHAOS_SEED=7 build/dev/tests/chaos/chaos_tests     (or tools/chaos 200 7)
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "chaos/chaos_job.h"

namespace lockstep::testing {
namespace {

using std::chrono::milliseconds;

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

class Chaos : public ::testing::Test {
 protected:
  Chaos() {
    char name[] = "/tmp/lockstep_chaos_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~Chaos() override {
    if (!HasFailure()) std::filesystem::remove_all(folder_);
  }

  int any(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  static void wait(int time_ms) { std::this_thread::sleep_for(milliseconds(time_ms)); }

  // Injects one fault, ends it if it has an end, and returns a description.
  std::string disturb(ChaosJob& job, HostSet& hosts) {
    const std::vector<pid_t> ranks = job.ranks();
    switch (any(13)) {
      case 0:
      case 1:
      case 2: {
        if (ranks.size() < 2) return "nothing: too few ranks run";
        const pid_t victim = ranks[static_cast<std::size_t>(any(static_cast<int>(ranks.size())))];
        ::kill(victim, SIGKILL);
        return fmt::format("kill -9 of rank process {}", victim);
      }
      case 3:
      case 4: {
        if (ranks.empty()) return "nothing: no rank runs";
        const pid_t victim = ranks[static_cast<std::size_t>(any(static_cast<int>(ranks.size())))];
        // Shorter than the peer timeout, or long enough to be left behind.
        const int time_ms = any(2) == 0 ? 50 + any(500) : 5000 + any(2000);
        ::kill(victim, SIGSTOP);
        wait(time_ms);
        ::kill(victim, SIGCONT);
        return fmt::format("stop of rank process {} for {} ms", victim, time_ms);
      }
      case 5: {
        const int host = any(hosts.size());
        const int time_ms = any(2) == 0 ? 50 + any(300) : 4000 + any(4000);
        EXPECT_TRUE(hosts.cut_link(host).ok());
        wait(time_ms);
        EXPECT_TRUE(hosts.restore_link(host).ok());
        return fmt::format("link of host {} cut for {} ms", host, time_ms);
      }
      case 6: return with_firewall(hosts, HostSet::Firewall::reject, "answers all packets with RST");
      case 7: return with_firewall(hosts, HostSet::Firewall::drop, "gets no packets");
      case 8: return with_firewall(hosts, HostSet::Firewall::lose, "loses 5 % of its packets");
      case 9: {
        const int host = any(hosts.size());
        const int time_ms = 500 + any(4000);
        job.signal_node(host, SIGSTOP);
        wait(time_ms);
        job.signal_node(host, SIGCONT);
        return fmt::format("stop of the launcher of host {} for {} ms", host, time_ms);
      }
      case 10: {  // each after the other's recovery has begun
        if (ranks.size() < 4) return "nothing: too few ranks run";
        ::kill(ranks[0], SIGKILL);
        wait(any(400));
        ::kill(ranks[1], SIGKILL);
        return fmt::format("kill -9 of rank processes {} and {}, shortly after each other", ranks[0], ranks[1]);
      }
      default: {
        const int host = any(hosts.size());
        // One of the hosts has the coordinator, and one the first rank.
        job.signal_node(host, SIGKILL);
        const int time_ms = any(3000);
        wait(time_ms);
        job.start_node(host);
        return fmt::format("kill -9 of the launcher of host {}, and a new one after {} ms", host, time_ms);
      }
    }
  }

  std::string with_firewall(HostSet& hosts, HostSet::Firewall firewall, const char* what) {
    const int host = any(hosts.size());
    const int time_ms = any(2) == 0 ? 50 + any(300) : 3000 + any(4000);
    const Status set = hosts.set_firewall(host, firewall);
    if (!set.ok()) return "nothing: " + set.message();
    wait(time_ms);
    EXPECT_TRUE(hosts.set_firewall(host, HostSet::Firewall::open).ok());
    return fmt::format("host {} {} for {} ms", host, what, time_ms);
  }

  std::mt19937 random_;
  std::string folder_;
};

TEST_F(Chaos, CostsNothingThatWasCommitted) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  const int faults = from_environment("LOCKSTEP_CHAOS_FAULTS", 20);
  const int seed = from_environment("LOCKSTEP_CHAOS_SEED", static_cast<int>(std::random_device{}() % 100000));
  std::printf("chaos: %d faults, seed %d\n", faults, seed);
  random_.seed(static_cast<unsigned>(seed));

  ChaosOptions options{.launcher = LOCKSTEP_COMMAND, .program = LOCKSTEP_TRAINING_PROGRAM, .folder = folder_};
  options.plan = {.folder = folder_ + "/log",
                  .samples = 960,
                  .epochs = 0,
                  .finish = folder_ + "/finish",
                  .step_ms = 10,
                  .peer_timeout_ms = 2000,
                  .silent_timeout_ms = 2000};
  ChaosJob job(options, hosts);
  for (int host = 0; host < options.hosts; ++host) job.start_node(host);
  ASSERT_TRUE(job.wait_for_step(3, in_seconds(120))) << "seed " << seed << "\n" << job.report();

  for (int fault = 0; fault < faults; ++fault) {
    // Newcomers must join first, so that no fault hits all ranks that have the state: that would rightly end the job.
    ASSERT_TRUE(job.wait_for_holders(5, in_seconds(90)))
        << "newcomers did not join before fault " << fault << ", seed " << seed << "\n"
        << job.report();
    const std::string what = disturb(job, hosts);
    const auto begin = std::chrono::steady_clock::now();
    const std::int64_t step = job.newest_step();
    ASSERT_TRUE(job.wait_for_step(step + 2, in_seconds(60))) << "no progress within 60 s after fault " << fault << " ("
                                                             << what << "), seed " << seed << ", step " << step << "\n"
                                                             << job.report();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("fault %d: %s; continued after %.1f s, at step %ld, with %zu ranks\n", fault, what.c_str(),
                took.count(), job.newest_step(), job.ranks().size());
    std::fflush(stdout);
    wait(any(1500));
  }

  // A rank that joined after all others had ended would wait for them.
  ASSERT_TRUE(job.wait_for_holders(6, in_seconds(90))) << "seed " << seed << "\n" << job.report();
  ASSERT_TRUE(job.finish(in_seconds(180))) << "seed " << seed << "\n" << job.report();
  EXPECT_TRUE(job.all_succeeded()) << job.report();
  const TrainingLog log = check_training(options.plan);
  EXPECT_THAT(log.problems, ::testing::IsEmpty()) << "seed " << seed;
  EXPECT_GT(log.epochs, 0);
  std::printf("chaos: %ld steps, %d epochs, %d generations\n", log.steps, log.epochs, log.generations);
  // The guard of a launcher that was killed stays for --node-timeout, so that the others can ask it.
  for (const Deadline deadline = in_seconds(20); !job.leftovers().empty() && !deadline.expired();) wait(100);
  EXPECT_THAT(job.leftovers(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace lockstep::testing
