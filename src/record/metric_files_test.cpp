#include "record/metric_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "lockstep/record/metrics_writer.h"
#include "record/event_file.h"

namespace lockstep::record {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Folder {
 public:
  Folder() {
    std::string name = "/tmp/lockstep-metrics-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  // Of the file whose name begins so.
  std::string content(const std::string& beginning) const {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      if (!entry.path().filename().string().starts_with(beginning)) continue;
      std::ostringstream text;
      text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      return text.str();
    }
    return "none";
  }

 private:
  std::string path_;
};

MetricPoint point(const std::string& name, std::int64_t step, double mean, std::int64_t generation = 0) {
  return {.name = name,
          .step = step,
          .generation = generation,
          .wall_ns = 1'700'000'000'250'000'000,
          .mean = mean,
          .min = mean,
          .max = mean,
          .values = 1};
}

// RFC 3720 and the usual check value.
TEST(EventFile, ChecksumsAreCrc32c) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
}

// As TensorFlow writes them, byte by byte.
TEST(EventFile, RecordsAreFramedProtobufMessages) {
  const EventScalar scalar{"a", 1.0F};
  const std::string record = scalars_event(0.5, 300, std::span(&scalar, 1));
  using namespace std::string_literals;
  const std::string event =
      "\x09\x00\x00\x00\x00\x00\x00\xE0\x3F\x10\xAC\x02\x2A\x0A\x0A\x08\x0A\x01"s + "a"s + "\x15\x00\x00\x80\x3F"s;
  ASSERT_EQ(record.size(), 12 + event.size() + 4);
  EXPECT_EQ(record.substr(0, 8), std::string(1, static_cast<char>(event.size())) + std::string(7, '\0'));
  EXPECT_EQ(record.substr(12, event.size()), event);
}

TEST(MetricFiles, HaveALineForEachPoint) {
  MetricPoint two = point("train/loss", 3, 1.5, 2);
  two.min = 1;
  two.max = 2;
  two.values = 2;
  EXPECT_EQ(csv_line(two), "1700000000.250,3,2,train/loss,1.5,1,2,2\n");
  EXPECT_EQ(json_line(two),
            "{\"time\":1700000000.250,\"step\":3,\"generation\":2,\"name\":\"train/loss\",\"mean\":1.5,\"min\":1,"
            "\"max\":2,\"values\":2}\n");
  EXPECT_THAT(csv_line(point("a, \"b\"", 0, std::nan(""))), HasSubstr(R"(,"a, ""b""",nan,nan,nan,1)"));
  EXPECT_THAT(json_line(point("a \"b\"", 0, -HUGE_VAL)), HasSubstr(R"("name":"a \"b\"","mean":"-Infinity")"));
  EXPECT_THAT(csv_line(point("exact", 0, 0.1)), HasSubstr(",0.1,"));
}

TEST(MetricFiles, AreContinuedByTheNextJob) {
  const Folder folder;
  for (int job = 0; job < 2; ++job) {
    auto files = MetricFiles::open(folder.path() + "/");
    ASSERT_TRUE(files.ok()) << files.status().message();
    const MetricPoint one = point("loss", job, 1);
    (*files)->write(std::span(&one, 1));
  }
  EXPECT_EQ(folder.content("metrics.csv"),
            "time,step,generation,name,mean,min,max,values\n1700000000.250,0,0,loss,1,1,1,1\n"
            "1700000000.250,1,0,loss,1,1,1,1\n");
}

TEST(MetricFiles, ThatACrashHasCutOffAreContinuedAfterTheirLastWholeLine) {
  const Folder folder;
  const std::string header = "time,step,generation,name,mean,min,max,values\n";
  std::ofstream(folder.path() + "/metrics.csv") << header << "1.000,1,0,loss,1,1,1,1\n1.000,2,0,lo";
  std::ofstream(folder.path() + "/metrics.jsonl") << "{\"time\":1.0";
  auto files = MetricFiles::open(folder.path());
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_THAT((*files)->take_trouble(), HasSubstr("metrics.csv' ended with a part of a line, which was removed"));
  const MetricPoint one = point("loss", 3, 1);
  (*files)->write(std::span(&one, 1));
  EXPECT_EQ(folder.content("metrics.csv"), header + "1.000,1,0,loss,1,1,1,1\n1700000000.250,3,0,loss,1,1,1,1\n");
  EXPECT_THAT(folder.content("metrics.jsonl"), StartsWith("{\"time\":1700000000.250,"));
}

// Event files contain a session log with the status START: field 7, two bytes, field 1, value 1.
TEST(MetricFiles, TellTensorBoardOnceOfStepsThatAreRepeated) {
  const Folder folder;
  auto files = MetricFiles::open(folder.path());
  ASSERT_TRUE(files.ok());
  const auto write = [&](const std::string& name, std::int64_t step, std::int64_t generation) {
    const MetricPoint one = point(name, step, 1, generation);
    (*files)->write(std::span(&one, 1));
  };
  const auto restarts = [&] {
    const std::string events = folder.content("events.out.tfevents.");
    int count = 0;
    for (auto at = events.find("\x3A\x02\x08\x01"); at != std::string::npos;
         at = events.find("\x3A\x02\x08\x01", at + 1))
      ++count;
    return count;
  };
  write("loss", 100, 0);
  write("loss", 101, 0);
  write("rate", 101, 0);
  write("epochs", 3, 0);
  EXPECT_EQ(restarts(), 0);
  write("epochs", 3, 1);  // would cost the others all their steps
  EXPECT_EQ(restarts(), 0);
  write("loss", 100, 1);
  write("rate", 100, 1);
  write("loss", 101, 1);
  EXPECT_EQ(restarts(), 1);
  write("loss", 102, 2);  // nothing is repeated
  EXPECT_EQ(restarts(), 1);
}

TEST(MetricFiles, AFolderThatCannotBeWrittenIsAnError) {
  const auto files = MetricFiles::open("/proc/none");
  ASSERT_FALSE(files.ok());
  EXPECT_EQ(files.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(files.status().message(), HasSubstr("metrics cannot be written to '/proc/none"));
  EXPECT_THROW(MetricsWriter("/proc/none"), Error);
}

// A limit on the size of files takes the place of a disk that is full: a write is cut short, then fails.
TEST(MetricFiles, OnAFullDiskWarnOnceAndKeepWholeRecords) {
  const Folder folder;
  auto files = MetricFiles::open(folder.path());
  ASSERT_TRUE(files.ok());
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit full{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &full);
  int warnings = 0;
  for (int step = 0; step < 100; ++step) {
    const MetricPoint one = point("loss", step, 0.125);
    (*files)->write(std::span(&one, 1));
    const std::string trouble = (*files)->take_trouble();
    if (trouble.empty()) continue;
    ++warnings;
    EXPECT_THAT(trouble, StartsWith("metrics cannot be written to '" + folder.path()));
    EXPECT_THAT(trouble, HasSubstr("File too large (EFBIG); the training continues"));
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(warnings, 1);
  const MetricPoint last = point("loss", 100, 0.5);
  (*files)->write(std::span(&last, 1));
  EXPECT_THAT((*files)->take_trouble(), StartsWith("metrics can be written again; "));

  std::istringstream lines(folder.content("metrics.csv"));
  std::string line;
  std::getline(lines, line);
  int whole = 0;
  std::string last_line;
  for (; std::getline(lines, line); ++whole) {
    EXPECT_THAT(line, StartsWith("1700000000.250,")) << "no part of a record may be left";
    last_line = line;
  }
  EXPECT_GT(whole, 10);
  EXPECT_LT(whole, 100);
  EXPECT_EQ(last_line, "1700000000.250,100,0,loss,0.5,0.5,0.5,1");
}

}  // namespace
}  // namespace lockstep::record
