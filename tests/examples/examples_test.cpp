// Every example runs, and its output has the documented lines.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/process_set.h"

namespace lockstep::testing {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::ResultOf;

std::string example(const std::string& name) { return std::string(EXAMPLES_FOLDER) + "/" + name; }

TEST(Examples, AllReduceLeavesTheSumOnEveryRank) {
  ProcessSet ranks = start_program(3, {example("01_all_reduce")});
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  ASSERT_TRUE(ranks.all_succeeded()) << ranks.report();
  EXPECT_THAT(ranks.output(0), HasSubstr("rank 0 of 3: contributed 1, got 6"));
  EXPECT_THAT(ranks.output(2), HasSubstr("rank 2 of 3: contributed 3, got 6"));
}

TEST(Examples, AllReduceWithoutAnEnvironmentReportsTheMissingVariable) {
  ProcessSet ranks = start_program(1, {example("01_all_reduce")}, {.environment = {{"RANK", std::nullopt}}});
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  EXPECT_EQ(ranks.exit_status(0)->code, 1);
  EXPECT_THAT(ranks.error_output(0), HasSubstr("RANK"));
}

#ifdef LOCKSTEP_WITH_DDP
// Runs an example on `ranks` processes; returns the output of rank 0.
std::string train(int ranks, const std::string& name, const std::vector<std::string>& options = {}) {
  std::vector<std::string> command = {example(name)};
  command.insert(command.end(), options.begin(), options.end());
  ProcessSet processes = start_program(ranks, command, {.environment = {{"OMP_NUM_THREADS", "1"}}});
  EXPECT_TRUE(processes.wait_all(in_seconds(110))) << processes.report();
  EXPECT_TRUE(processes.all_succeeded()) << processes.report();
  return processes.output(0);
}

TEST(Examples, LinearModel) { EXPECT_THAT(train(3, "02_linear"), HasSubstr("3 replicas, bit-identical")); }

TEST(Examples, FashionMnistLearnsFromAPartOfTheData) {
  const std::string output = train(2, "03_fashion_mnist", {"--epochs", "1", "--samples", "6000"});
  const auto accuracy = output.find("test accuracy ");
  ASSERT_NE(accuracy, std::string::npos) << output;
  EXPECT_GT(std::stod(output.substr(accuracy + 14)), 70) << output;
  EXPECT_THAT(output, HasSubstr("2 replicas, bit-identical"));
}

TEST(Examples, CharGpt) {
  EXPECT_THAT(train(2, "04_char_gpt", {"--steps", "40", "--sample", "40"}), HasSubstr("loss "));
}

TEST(Examples, UnevenData) { EXPECT_THAT(train(3, "05_uneven_data"), HasSubstr("largest difference to one process")); }

TEST(Examples, CustomHook) { EXPECT_THAT(train(2, "06_custom_hook"), HasSubstr("hook \"majority vote\"")); }

TEST(Examples, DataParallelComparedWithDdp) {
  EXPECT_THAT(train(1, "07_dp_against_ddp", {"--steps", "3"}), HasSubstr("DistributedDataParallel"));
}

// All numbers that follow `text`; at least one.
std::vector<double> numbers_after(const std::string& output, const std::string& text) {
  std::vector<double> numbers;
  for (auto at = output.find(text); at != std::string::npos; at = output.find(text, at + 1)) {
    numbers.push_back(std::stod(output.substr(at + text.size())));
  }
  if (numbers.empty()) throw std::runtime_error("no \"" + text + "\" in\n" + output);
  return numbers;
}

TEST(Examples, GanMovesTheGeneratedImagesTowardsTheData) {
  const std::string picture = ::testing::TempDir() + "gan_" + std::to_string(::getpid()) + ".pgm";
  const std::string output = train(2, "09_gan", {"--steps", "60", "--batch", "32", "--samples", picture});
  for (const char* loss : {"discriminator loss ", "generator loss "}) {
    EXPECT_THAT(numbers_after(output, loss), Each(ResultOf([](double x) { return std::isfinite(x); }, true))) << output;
  }
  // The discriminator can tell real images from generated ones before the generator has learned much.
  EXPECT_THAT(numbers_after(output, " ("), Contains(Gt(65))) << output;
  // The discriminator would have twice as many if it were not frozen while the generator learns.
  EXPECT_THAT(output, HasSubstr("synchronised backward passes: discriminator 60, generator 60"));
  const double after = numbers_after(output, "average generated image: ")[0];
  const double before = numbers_after(output, "from the average real one; ")[0];
  EXPECT_LT(after, 0.7 * before) << output;
  EXPECT_THAT(output, HasSubstr("2 replicas of both models, bit-identical"));
  std::ifstream file(picture, std::ios::binary);
  std::string format, width, height;
  file >> format >> width >> height;
  EXPECT_EQ(format + " " + width + " " + height, "P5 280 280");
  std::filesystem::remove(picture);
}

TEST(Examples, ContrastiveHasTheGradientsOfOneProcessAndLearns) {
  const std::string output = train(2, "10_contrastive", {"--steps", "100", "--batch", "64"});
  EXPECT_LT(numbers_after(output, "those of one process by ")[0], 1e-5) << output;
  EXPECT_GT(numbers_after(output, "found ").back(), 30) << output;  // at random: 1 %
  EXPECT_THAT(output, HasSubstr("2 replicas, bit-identical"));
}

// The ranks that a launcher started.
std::vector<pid_t> ranks_of(pid_t launcher, const std::string& program) {
  std::vector<pid_t> result;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    std::getline(stat, line);
    int parent = 0;
    const auto name_end = line.rfind(") ");
    if (name_end == std::string::npos || std::sscanf(line.c_str() + name_end + 2, "%*c %d", &parent) != 1) continue;
    std::error_code error;
    const auto executable = std::filesystem::read_symlink(entry.path() / "exe", error);
    if (parent == launcher && executable.filename() == program) result.push_back(std::stoi(name));
  }
  return result;
}

#ifdef LOCKSTEP_COMMAND
TEST(Examples, ElasticTrainingSurvivesAKill) {
  const std::vector<std::string> command = {LOCKSTEP_COMMAND,      "run",      "--elastic", "--nproc-per-node", "3",
                                            example("08_elastic"), "--epochs", "1",         "--samples",        "9000"};
  ProcessSet job = start_program(1, command,
                                 {.environment = {{"RANK", std::nullopt},
                                                  {"WORLD_SIZE", std::nullopt},
                                                  {"MASTER_ADDR", std::nullopt},
                                                  {"MASTER_PORT", std::nullopt},
                                                  {"LOCKSTEP_STORE_FD", std::nullopt}}});
  ASSERT_TRUE(job.wait_for_line(0, "generation 1: 3 ranks, at step 0", in_seconds(60))) << job.report();
  const std::vector<pid_t> ranks = ranks_of(job.pid(0), "08_elastic");
  ASSERT_EQ(ranks.size(), 3u) << job.report();
  ASSERT_EQ(::kill(ranks[1], SIGKILL), 0);
  ASSERT_TRUE(job.wait_all(in_seconds(110))) << job.report();
  EXPECT_TRUE(job.all_succeeded()) << job.report();
  EXPECT_THAT(job.output(0), HasSubstr("generation 2: 2 ranks"));
  EXPECT_THAT(job.output(0), HasSubstr("replicas, bit-identical"));
  EXPECT_THAT(job.error_output(0), HasSubstr("SIGKILL"));
}
#endif

TEST(Examples, AnUnknownOptionIsNamedInTheError) {
  ProcessSet program = start_program(1, {example("02_linear"), "--prcesses", "3"});
  ASSERT_TRUE(program.wait_all(in_seconds(60))) << program.report();
  EXPECT_EQ(program.exit_status(0)->code, 2);
  EXPECT_THAT(program.error_output(0), HasSubstr("--prcesses is not an option. Options: --nproc"));
}
#endif

}  // namespace
}  // namespace lockstep::testing
