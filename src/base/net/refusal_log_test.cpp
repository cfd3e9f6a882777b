#include "base/net/refusal_log.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

class RefusalLogTest : public ::testing::Test {
 protected:
  void refuse(int times, const std::string& why = "no proof") {
    for (int i = 0; i < times; ++i) log_.refused("10.0.0.1:7", Status(StatusCode::unauthenticated, why), now_);
  }
  static long lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

  RefusalLog log_;
  RefusalLog::Clock::time_point now_{1h};
};

TEST_F(RefusalLogTest, CountsWhatExceedsTheRate) {
  ::testing::internal::CaptureStderr();
  refuse(4500);
  ASSERT_TRUE(log_.due().has_value());
  log_.report(now_);
  now_ = *log_.due();
  log_.report(now_);
  EXPECT_EQ(log_.due(), std::nullopt);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines(text), static_cast<long>(RefusalLog::kLinesPerInterval) + 1) << text;
  EXPECT_THAT(text, HasSubstr("refused a connection from 10.0.0.1:7: no proof"));
  EXPECT_THAT(text, HasSubstr("refused 4495 more connections within 10 s; the last one from 10.0.0.1:7: no proof"));
}

TEST_F(RefusalLogTest, ANewIntervalHasItsOwnLines) {
  ::testing::internal::CaptureStderr();
  refuse(6);
  now_ += RefusalLog::kInterval;
  refuse(1, "another reason");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("refused 1 more connection within"));
  EXPECT_THAT(text, HasSubstr("refused a connection from 10.0.0.1:7: another reason"));
}

TEST_F(RefusalLogTest, NothingThatStrangersSendReachesTheLogRaw) {
  ::testing::internal::CaptureStderr();
  refuse(1, "role '\x1b[31m\r\nfake line\x80'");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("role '?[31m??fake line?'"));
  EXPECT_EQ(lines(text), 1) << text;
  EXPECT_THAT(text, Not(HasSubstr("\x80")));
}

}  // namespace
}  // namespace lockstep
