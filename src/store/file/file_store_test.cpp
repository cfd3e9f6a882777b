// What FileStore guarantees beyond the conformance suite: other processes, crashes, foreign files.
#include "store/file/file_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/unique_fd.h"
#include "store/file/file_record.h"
#include "support/process_set.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

Deadline soon() { return Deadline::after(30s); }

class FileStoreFile : public ::testing::Test {
 protected:
  ~FileStoreFile() override { std::filesystem::remove(path_); }
  std::shared_ptr<FileStore> open() { return FileStore::open(path_).value(); }
  std::string content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes; }

  const std::filesystem::path path_ = std::filesystem::temp_directory_path() / ("lockstep-file-store-" + random_hex(8));
};

TEST_F(FileStoreFile, IsOnlyForItsOwner) {
  open();
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

TEST_F(FileStoreFile, RefusesAFileThatOtherUsersCanWrite) {
  open();
  ASSERT_EQ(::chmod(path_.c_str(), 0666), 0);
  const auto opened = FileStore::open(path_);
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.status().message(), HasSubstr("has mode 666"));
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  EXPECT_TRUE(FileStore::open(path_).ok());
}

TEST_F(FileStoreFile, RefusesAFileOfAnotherUser) {
  open();
  if (::chown(path_.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "giving a file to another user needs CAP_CHOWN (root)";
  const auto opened = FileStore::open(path_);
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.status().message(), HasSubstr("belongs to uid 65534"));
}

TEST_F(FileStoreFile, RemovesWhatAProcessLeftThatDiedWhileItReplacedTheFile) {
  const std::string leftover = path_.string() + ".compact";
  open();
  UniqueFd file(::open(leftover.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(file.valid());
  ASSERT_TRUE(open()->set("key", "value", soon()).ok());
  EXPECT_NE(::access(leftover.c_str(), F_OK), 0);
}

TEST_F(FileStoreFile, IgnoresAndReplacesARecordThatACrashLeftHalfWritten) {
  ASSERT_TRUE(open()->set("whole", "1", soon()).ok());
  const std::string before = content();
  ASSERT_TRUE(open()->set("torn", "2", soon()).ok());
  const std::string after = content();
  for (std::size_t size = before.size() + 1; size < after.size(); ++size) {
    write(after.substr(0, size));
    const auto store = open();
    EXPECT_EQ(store->list("", soon())->size(), 1U) << "with " << size << " bytes";
    ASSERT_TRUE(store->set("next", "3", soon()).ok());
    EXPECT_EQ(open()->get("next", soon()).value(), "3");
    EXPECT_FALSE(open()->check(std::vector<std::string>{"torn"}, soon()).value());
  }
}

TEST_F(FileStoreFile, IgnoresACorruptTail) {
  ASSERT_TRUE(open()->set("whole", "1", soon()).ok());
  const std::string before = content();
  ASSERT_TRUE(open()->set("torn", "value", soon()).ok());
  std::string after = content();
  after[after.size() - 2] ^= 0x20;
  write(after);
  EXPECT_EQ(open()->list("", soon())->size(), 1U);
  write(before + std::string(100, '\0'));  // as a file system may leave it after a crash
  EXPECT_EQ(open()->list("", soon())->size(), 1U);
  EXPECT_TRUE(open()->set("next", "", soon()).ok());
  EXPECT_EQ(open()->list("", soon())->size(), 2U);
}

TEST_F(FileStoreFile, ContinuesAfterAHalfWrittenHeader) {
  ASSERT_TRUE(open()->set("key", "", soon()).ok());
  const std::string whole = content();
  for (std::size_t size = 0; size < file_record::kFileHeaderBytes; ++size) {
    write(whole.substr(0, size));
    const auto store = open();
    EXPECT_TRUE(store->list("", soon())->empty());
    EXPECT_TRUE(store->set("key", "", soon()).ok());
    EXPECT_EQ(content().size(), whole.size());
    EXPECT_EQ(open()->list("", soon())->size(), 1U);
  }
}

TEST_F(FileStoreFile, LeavesAForeignFileUnchanged) {
  for (const std::string text : {"precious", "a longer text that is surely not a store's header"}) {
    write(text);
    const auto store = FileStore::open(path_);
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.status().code(), StatusCode::protocol_error);
    EXPECT_THAT(store.status().message(), HasSubstr(path_.string()));
    EXPECT_EQ(content(), text);
  }
}

TEST_F(FileStoreFile, NamesBothVersions) {
  ASSERT_TRUE(open()->set("key", "", soon()).ok());
  std::string bytes = content();
  bytes[8] = 42;
  write(bytes);
  const auto store = FileStore::open(path_);
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.status().message(), HasSubstr("version 42"));
  EXPECT_THAT(store.status().message(), HasSubstr("version 2"));
}

// Keys that are set again and again, as the beats of nodes are, or set and removed, as by each group that forms.
TEST_F(FileStoreFile, DoesNotGrowWithoutBound) {
  const auto store = open();
  const auto other = open();  // follows, as another process does
  ASSERT_TRUE(store->set("kept", "as it was", soon()).ok());
  std::uintmax_t largest = 0;
  for (int i = 0; i < 6000; ++i) {
    const std::string key = "session/" + std::to_string(i);
    const auto& writer = i % 500 < 250 ? store : other;
    ASSERT_TRUE(writer->set(key, std::string(200, 'x'), soon()).ok());
    ASSERT_TRUE(writer->set("beat", std::to_string(i), soon()).ok());
    ASSERT_TRUE(writer->remove(key, soon()).value());
    largest = std::max(largest, std::filesystem::file_size(path_));
    if (i % 100 == 0) {
      ASSERT_EQ((i % 200 == 0 ? store : other)->get("beat", soon()).value(), std::to_string(i));
    }
  }
  EXPECT_LT(largest, 300U << 10) << "of nearly 2 MB that were written";
  for (const auto& reader : {store, other, open()}) {
    EXPECT_EQ(reader->get("kept", soon()).value(), "as it was");
    EXPECT_EQ(reader->get("beat", soon()).value(), "5999");
    EXPECT_EQ(reader->list("", soon())->size(), 2U);
  }
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

TEST_F(FileStoreFile, NoChangeIsLostWhenTheFileIsReplaced) {
  constexpr int kWriters = 3;
  constexpr int kChanges = 400;
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, store = open()] {
      for (int i = 0; i < kChanges; ++i) {
        EXPECT_TRUE(store->add("counter", 1, soon()).ok());
        EXPECT_TRUE(store->set("beat", std::string(800, 'x'), soon()).ok());
      }
    });
  }
  for (auto& writer : writers) writer.join();
  EXPECT_EQ(open()->get("counter", soon()).value(), std::to_string(kWriters * kChanges));
  EXPECT_LT(std::filesystem::file_size(path_), 300U << 10);
}

TEST_F(FileStoreFile, AnotherStoreOfTheSameNameIsNotItsSuccessor) {
  const auto store = open();
  ASSERT_TRUE(store->set("key", "first", soon()).ok());
  std::filesystem::remove(path_);
  ASSERT_TRUE(open()->set("key", "second", soon()).ok());
  const Status status = store->set("key", "third", soon());
  EXPECT_EQ(status.code(), StatusCode::unavailable);
  EXPECT_THAT(status.message(), HasSubstr("deleted"));
  EXPECT_EQ(open()->get("key", soon()).value(), "second");
}

TEST_F(FileStoreFile, ReportsThatItWasDeleted) {
  const auto store = open();
  std::filesystem::remove(path_);
  const Status status = store->set("key", "", soon());
  EXPECT_EQ(status.code(), StatusCode::unavailable);
  EXPECT_THAT(status.message(), HasSubstr("deleted"));
  EXPECT_EQ(store->get("key", soon()).status().code(), StatusCode::unavailable);
}

TEST_F(FileStoreFile, ReportsThatTheDirectoryIsMissing) {
  const auto store = FileStore::open("/no/such/directory/store");
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::unavailable);
  EXPECT_THAT(store.status().message(), HasSubstr("/no/such/directory/store"));
  EXPECT_EQ(FileStore::open("/tmp").status().code(), StatusCode::unavailable);
}

TEST_F(FileStoreFile, TimesOutOnALockThatAnotherProcessHoldsAndStillReads) {
  const auto store = open();
  ASSERT_TRUE(store->set("key", "value", soon()).ok());
  const UniqueFd other(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  const Status status = store->set("key", "new", Deadline::after(20ms));
  EXPECT_EQ(status.code(), StatusCode::timed_out);
  EXPECT_THAT(status.message(), HasSubstr("locked"));
  EXPECT_EQ(open()->get("key", soon()).value(), "value");
}

constexpr int kAdds = 200;

LOCKSTEP_PROCESS_ROLE(add_to_file_store) {
  const auto store = FileStore::open(std::getenv("STORE_PATH")).value();
  for (int i = 0; i < kAdds; ++i) {
    if (!store->add("counter", 1, soon()).ok()) return 1;
    if (i == 0) testing::print_mark("adding");
  }
  return store->get("go", soon()).ok() ? 0 : 2;
}

TEST_F(FileStoreFile, CountsCorrectlyWithSeveralProcessesOfWhichOneIsKilled) {
  const auto store = open();
  auto ranks = testing::start_ranks(4, "add_to_file_store", {.environment = {{"STORE_PATH", path_.string()}}});
  ASSERT_TRUE(ranks.wait_for_line(3, "adding", soon())) << ranks.report();
  ranks.kill(3, SIGKILL);
  ASSERT_TRUE(ranks.wait(3, soon()));
  ASSERT_TRUE(store->set("go", "", soon()).ok());
  ASSERT_TRUE(ranks.wait_all(soon())) << ranks.report();
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(ranks.exit_status(rank)->success()) << ranks.report();
  const std::int64_t total = store->add("counter", 0, soon()).value();
  EXPECT_GE(total, 3 * kAdds + 1);
  EXPECT_LE(total, 4 * kAdds);
}

TEST(FileRecord, EveryChangeSurvivesARoundTrip) {
  using file_record::Change;
  const file_record::Record records[] = {
      {Change::set, "k", "v"}, {Change::set, "", ""}, {Change::remove, "k", ""}, {Change::append, "k", "more"}};
  for (const auto& record : records) {
    Bytes bytes = file_record::format_record(record);
    const std::size_t size = bytes.size();
    bytes.resize(size + 20);
    const auto parsed = file_record::parse_record(bytes);
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(parsed->record, record);
    EXPECT_EQ(parsed->bytes, size);
  }
}

}  // namespace
}  // namespace lockstep
