#include "lockstep/record/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "record/recorder.h"

namespace lockstep {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class File {
 public:
  std::FILE* get() const { return file_.get(); }
  std::string text() const {
    std::string content(static_cast<std::size_t>(std::ftell(get())), '\0');
    std::rewind(get());
    content.resize(std::fread(content.data(), 1, content.size(), get()));
    return content;
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{std::tmpfile(), &std::fclose};
};

TEST(Progress, WritesLinesToAFile) {
  const File file;
  Progress progress("epoch 1/2", {.total = 200, .rank = 0, .file = file.get(), .line_every = std::chrono::hours(1)});
  for (int i = 0; i < 20; ++i) progress.advance(10, {{"loss", 0.5}});
  progress.advance(0);
  EXPECT_THAT(file.text(), MatchesRegex("epoch 1/2:   5 %  loss 0.5000  [0-9]+ samples/s  [0-9]+ s left\n"
                                        "epoch 1/2: 100 %  loss 0.5000  [0-9]+ samples/s  0 s left\n"));
  EXPECT_EQ(progress.done(), 200);
}

TEST(Progress, RecoversFromAValueThatIsNotANumber) {
  const File file;
  Progress progress("x", {.total = 4, .rank = 0, .file = file.get(), .line_every = {}});
  for (const double loss : {0.5, std::nan(""), HUGE_VAL, 0.25}) progress.advance(1, {{"loss", loss}});
  EXPECT_THAT(file.text(), MatchesRegex(".*loss 0.5000.*\n.*loss nan.*\n.*loss inf.*\n.*loss 0.2500.*\n"));
}

TEST(Progress, OtherRanksAreSilent) {
  const File file;
  Progress progress("x", {.total = 10, .rank = 1, .file = file.get()});
  for (int i = 0; i < 10; ++i) progress.advance(1);
  EXPECT_EQ(file.text(), "");
}

TEST(Progress, ARankThatBecomesRankZeroContinuesAtTheSamePosition) {
  auto& recorder = record::Recorder::process();
  const File file;
  Progress progress("job", {.total = 100, .unit = "steps", .file = file.get(), .line_every = {}});
  recorder.set_world(2, 4, 1);
  for (int step = 1; step <= 50; ++step) progress.move_to(step);
  recorder.set_world(0, 2, 2);
  progress.move_to(50);
  recorder.set_world(1, 2, 3);
  progress.move_to(51);
  recorder.set_world(-1, 0, 0);
  EXPECT_THAT(file.text(), MatchesRegex("job:  50 %  [0-9]+ steps/s  0 s left\n"));
}

TEST(Progress, MeasuresTheRateAnewWhenThePositionGoesBack) {
  const File file;
  Progress progress("x", {.total = 1000, .done = 500, .rank = 0, .file = file.get()});
  progress.move_to(500);
  EXPECT_EQ(progress.per_second(), 0);
  progress.move_to(400);
  EXPECT_EQ(progress.per_second(), 0);
  progress.move_to(410);
  EXPECT_GT(progress.per_second(), 0);
}

TEST(Progress, WithoutATotalHasNoPercentage) {
  const File file;
  Progress progress("tokens", {.unit = "tokens", .rank = 0, .file = file.get()});
  progress.advance(512);
  EXPECT_THAT(file.text(), MatchesRegex("tokens: 512 tokens  [0-9]+ tokens/s\n"));
}

TEST(Progress, DrawsABarOnATerminal) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(master, 0);
  ASSERT_EQ(::grantpt(master), 0);
  ASSERT_EQ(::unlockpt(master), 0);
  std::FILE* const terminal = std::fopen(::ptsname(master), "w");
  ASSERT_NE(terminal, nullptr);
  Progress progress("bar", {.total = 2, .rank = 0, .file = terminal});
  progress.advance(1);
  progress.advance(1);
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(master, text.data(), text.size()), 0)));
  std::fclose(terminal);
  ::close(master);
  EXPECT_THAT(text, HasSubstr("\rbar [###############...............]  50 %"));
  EXPECT_THAT(text, ContainsRegex("\rbar .#{30}. 100 %.*\n"));
}

}  // namespace
}  // namespace lockstep
