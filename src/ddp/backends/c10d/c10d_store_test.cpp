#include "ddp/backends/c10d/c10d_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "store/memory_store.h"
#include "store/prefix_store.h"

#if LOCKSTEP_HAS_C10D

namespace lockstep::detail {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Bytes = C10dStore::Bytes;

class C10dStoreTest : public ::testing::Test {
 protected:
  std::shared_ptr<MemoryStore> memory_ = std::make_shared<MemoryStore>();
  std::atomic<bool> healthy_{true};
  c10::intrusive_ptr<C10dStore> store_ = c10::make_intrusive<C10dStore>(
      std::make_shared<PrefixStore>(memory_, "job/"),
      [this] { return healthy_ ? Status() : Status(StatusCode::peer_lost, "rank 1 is gone"); });
};

TEST_F(C10dStoreTest, KeepsBytesUnderItsPrefix) {
  const Bytes value{0, 255, 7};
  store_->set("key", value);
  EXPECT_EQ(store_->get("key"), value);
  EXPECT_EQ(*memory_->get("job/key", Deadline::after(0s)), std::string("\0\xff\x07", 3));
  EXPECT_TRUE(store_->check({"key"}));
  EXPECT_FALSE(store_->check({"key", "other"}));
  EXPECT_EQ(store_->getNumKeys(), 1);
  EXPECT_TRUE(store_->deleteKey("key"));
  EXPECT_FALSE(store_->deleteKey("key"));
  EXPECT_EQ(store_->getNumKeys(), 0);
}

TEST_F(C10dStoreTest, Counts) {
  EXPECT_EQ(store_->add("counter", 3), 3);
  EXPECT_EQ(store_->add("counter", -1), 2);
}

TEST_F(C10dStoreTest, ComparesAsTcpStoreDoes) {
  const Bytes none, one{'1'}, two{'2'}, three{'3'};
  EXPECT_EQ(store_->compareSet("key", one, two), one) << "absent: what was expected";
  EXPECT_EQ(store_->compareSet("key", none, one), one);
  EXPECT_EQ(store_->compareSet("key", three, two), one) << "another value: it stays";
  EXPECT_EQ(store_->compareSet("key", one, two), two);
  EXPECT_EQ(store_->compareSet("key", none, three), two);
}

TEST_F(C10dStoreTest, WaitsForAKeyThatComesLater) {
  std::thread writer([&] { store_->set("late", {1}); });
  EXPECT_EQ(store_->get("late"), Bytes{1});
  writer.join();
  store_->wait({"late"}, 5s);
}

TEST_F(C10dStoreTest, AWaitEndsAtItsTimeoutAndNamesTheKey) {
  try {
    store_->wait({"never"}, 300ms);
    FAIL() << "must not come";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), StatusCode::timed_out);
    EXPECT_THAT(error.what(), HasSubstr("never"));
  }
}

TEST_F(C10dStoreTest, AWaitEndsWhenTheGroupFails) {
  healthy_ = false;
  try {
    store_->wait({"never"}, 60s);
    FAIL() << "must not come";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 is gone"));
  }
}

TEST_F(C10dStoreTest, ACloneIsTheSameStore) {
  store_->setTimeout(1234ms);
  const auto clone = store_->clone();
  clone->set("key", Bytes{9});
  EXPECT_EQ(store_->get("key"), Bytes{9});
  EXPECT_EQ(clone->getTimeout(), 1234ms);
}

}  // namespace
}  // namespace lockstep::detail

#endif
