// Strangers connect to every port of a job, while it forms and while it trains. The job neither ends nor runs out of
// descriptors. How much it slows down is measured by strangers_measure, not here.
#include <gmock/gmock.h>

#include <algorithm>
#include <thread>

#include "base/net/stranger_budget.h"
#include "strangers/attacked_job.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

LOCKSTEP_PROCESS_ROLE(attacked_rank) { return run_attacked_rank(); }

constexpr int kRanks = 4;
// What a rank of such a job has open by itself, with room to spare.
constexpr std::size_t kOwnDescriptors = 100;

long lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

void expect_job_to_survive(const Crowd::Options& options) {
  AttackedJob job(kRanks);
  Crowd crowd(options);
  job.start();
  // The crowd learns of new ports as soon as they are there, the first ones long before the group is formed.
  while (!job.ranks().wait_for_line(0, "formed", Deadline::after(2ms))) {
    ASSERT_FALSE(job.ranks().exit_status(0)) << job.ranks().report();
    crowd.attack(job.ports());
    job.most_descriptors();
    if (crowd.made() > options.connections / 20) job.let_the_last_rank_join();
  }
  crowd.attack(job.ports());
  while (!crowd.finished()) {
    for (int rank = 0; rank < kRanks; ++rank) ASSERT_FALSE(job.ranks().exit_status(rank)) << job.ranks().report();
    job.most_descriptors();
    std::this_thread::sleep_for(10ms);
  }
  const double steps = job.progress().steps;
  const auto patience = in_seconds(60);
  while (job.progress().steps <= steps && !patience.expired()) std::this_thread::sleep_for(10ms);
  EXPECT_GT(job.progress().steps, steps) << "it still trains";
  EXPECT_TRUE(job.finish()) << job.ranks().report();

  const auto budget = StrangerBudget::limits_for(1024);
  EXPECT_LE(job.most_descriptors(), budget.process + kOwnDescriptors);
  EXPECT_EQ(crowd.stop(), options.connections);
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string log = job.ranks().error_output(rank);
    EXPECT_LE(lines_of(log), 100) << log;
    EXPECT_THAT(log, Not(HasSubstr("\x1b[31mdata"))) << "bytes of strangers";
  }
  ::testing::Test::RecordProperty("most_descriptors", static_cast<int>(job.most_descriptors()));
}

TEST(Strangers, DoNotEndAJobThatFormsAndTrains) {
  expect_job_to_survive({.connections = 2'000, .at_once = 1'000, .per_second = 1'500});
}

TEST(StrangersFlood, OfTwentyThousandDoesNotEndAJob) {
  expect_job_to_survive({.connections = 20'000, .at_once = 5'000, .per_second = 1'000});
}

}  // namespace
}  // namespace lockstep::testing
