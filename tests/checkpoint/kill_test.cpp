// kill -9 at random moments of writing: the last snapshot that was reported as written always loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "checkpoint/snapshot_directory.h"
#include "checkpoint/testing/test_folder.h"
#include "support/process_set.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::in_seconds;
using lockstep::testing::print_mark;
using lockstep::testing::ProcessSet;
using lockstep::testing::start_ranks;
using testing::TestFolder;
using testing::write_small;

constexpr int kKills = 50;
constexpr std::size_t kBytes = 300'000;

std::int64_t newest_step(const std::string& folder) {
  const auto newest = read_newest_snapshot(folder);
  EXPECT_TRUE(newest.ok()) << newest.status().to_string();
  if (!newest.ok() || !newest->snapshot) return 0;
  EXPECT_TRUE(newest->skipped_snapshots.empty()) << newest->skipped_snapshots[0].reason;
  return newest->snapshot->manifest.step;
}

// Continues from the newest snapshot, one after the other, until it is killed.
LOCKSTEP_PROCESS_ROLE(writer) {
  const std::string folder = std::getenv("LOCKSTEP_TEST_FOLDER");
  for (std::int64_t step = newest_step(folder) + 1;; ++step) {
    const std::string text(kBytes, static_cast<char>('a' + step % 26));
    const auto written = write_small(folder, step, {.keep_last = 2}, text);
    if (!written.ok()) {
      print_mark(written.status().to_string());
      return 1;
    }
    print_mark("written " + std::to_string(step));
  }
}

std::int64_t last_reported(const std::string& output) {
  const std::size_t at = output.rfind("written ");
  return at == std::string::npos ? 0 : std::stoll(output.substr(at + 8));
}

TEST(SnapshotKill, TheLastValidSnapshotAlwaysLoads) {
  const TestFolder folder;
  const auto seed = static_cast<unsigned>(::getpid());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> fraction(0, 1);
  std::int64_t reported = 0;
  int killed_while_writing = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    const std::int64_t first = newest_step(folder.path()) + 1;
    ProcessSet process = start_ranks(1, "writer", {.environment = {{"LOCKSTEP_TEST_FOLDER", folder.path()}}});
    // How long one takes decides what "in the middle of writing" means on this machine now.
    ASSERT_TRUE(process.wait_for_line(0, "written " + std::to_string(first), in_seconds(60))) << process.report();
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(process.wait_for_line(0, "written " + std::to_string(first + 1), in_seconds(60))) << process.report();
    const auto one = std::chrono::steady_clock::now() - begin;
    // Not for synchronisation: the moment of the kill is the point of the test.
    std::this_thread::sleep_for(std::chrono::duration<double>(2 * fraction(random) * one));
    process.kill(0, SIGKILL);
    ASSERT_TRUE(process.wait_all(in_seconds(30)));
    EXPECT_EQ(process.exit_status(0)->signal, SIGKILL) << process.report();
    reported = std::max(reported, last_reported(process.output(0)));
    // Perhaps one more than it could report.
    const std::int64_t step = newest_step(folder.path());
    EXPECT_GE(step, reported);
    EXPECT_LE(step, reported + 1);
    for (const std::string& name : folder.names()) killed_while_writing += name.starts_with(".tmp-") ? 1 : 0;
  }
  EXPECT_GT(killed_while_writing, kKills / 10) << "the kills missed the writing";
  // The next writer leaves only what is kept.
  ASSERT_TRUE(write_small(folder.path(), reported + 2, {.keep_last = 2}).ok());
  EXPECT_EQ(folder.names().size(), 2U);
}

}  // namespace
}  // namespace lockstep::checkpoint
