// The contract of lockstep/store/store.h, tested on every store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>

#include "base/random.h"
#include "lockstep/store/stores.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

// One shared store, and as many clients of it as a test needs.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::shared_ptr<Store> client() = 0;
};

class MemoryBackend final : public Backend {
 public:
  explicit MemoryBackend(const StoreLimits& limits) : store_(make_memory_store(limits)) {}
  std::shared_ptr<Store> client() override { return store_; }

 private:
  std::shared_ptr<Store> store_;
};

class FileBackend final : public Backend {
 public:
  explicit FileBackend(const StoreLimits& limits)
      : limits_(limits), path_(std::filesystem::temp_directory_path() / ("lockstep-store-" + random_hex(8))) {}
  ~FileBackend() override { std::filesystem::remove(path_); }
  std::shared_ptr<Store> client() override { return open_file_store(path_, limits_); }

 private:
  const StoreLimits limits_;
  const std::filesystem::path path_;
};

class TcpBackend final : public Backend {
 public:
  explicit TcpBackend(const StoreLimits& limits) {
    StoreServerOptions options;
    options.secret = secret_;
    options.limits = limits;
    server_ = serve_tcp_store(options);
  }
  std::shared_ptr<Store> client() override {
    return connect_tcp_store("127.0.0.1", server_->port(), secret_, Deadline::after(30s));
  }

 private:
  const Secret secret_{"conformance"};
  std::unique_ptr<StoreServer> server_;
};

template <typename Inner>
class PrefixBackend final : public Backend {
 public:
  explicit PrefixBackend(const StoreLimits& limits) : inner_(limits) {
    // Another prefix whose keys must never be visible.
    EXPECT_TRUE(inner_.client()->set("other/key", "neighbour", Deadline::after(30s)).ok());
    EXPECT_TRUE(inner_.client()->set("view", "neighbour", Deadline::after(30s)).ok());
  }
  std::shared_ptr<Store> client() override { return make_prefix_store(inner_.client(), "view/"); }

 private:
  Inner inner_;
};

struct Kind {
  const char* name;
  std::function<std::unique_ptr<Backend>(const StoreLimits&)> make;
};

std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }

template <typename B>
Kind kind(const char* name) {
  return {name, [](const StoreLimits& limits) { return std::make_unique<B>(limits); }};
}

class StoreConformance : public ::testing::TestWithParam<Kind> {
 protected:
  std::shared_ptr<Store> client() {
    if (!backend_) backend_ = GetParam().make(limits_);
    return backend_->client();
  }
  static Deadline soon() { return Deadline::after(30s); }
  static Deadline briefly() { return Deadline::after(30ms); }

  StoreLimits limits_;

 private:
  std::unique_ptr<Backend> backend_;
};

TEST_P(StoreConformance, GetReturnsWhatWasSet) {
  const auto store = client();
  const std::string binary("\0\xFF\n value", 9);
  ASSERT_TRUE(store->set("a", binary, soon()).ok());
  EXPECT_EQ(client()->get("a", soon()).value(), binary);
  ASSERT_TRUE(store->set("a", "", soon()).ok());
  EXPECT_EQ(client()->get("a", soon()).value(), "");
}

TEST_P(StoreConformance, LargeValuesPass) {
  const std::string large(std::size_t{4} << 20, 'x');
  ASSERT_TRUE(client()->set("large", large, soon()).ok());
  EXPECT_EQ(client()->get("large", soon()).value(), large);
}

TEST_P(StoreConformance, GetWaitsUntilTheKeyExists) {
  const auto reader = client();
  const auto writer = client();
  std::thread thread([&] { EXPECT_EQ(reader->get("late", soon()).value(), "here"); });
  EXPECT_FALSE(writer->check(std::vector<std::string>{"late"}, soon()).value());
  ASSERT_TRUE(writer->set("late", "here", soon()).ok());
  thread.join();
}

TEST_P(StoreConformance, GetGivesUpAtItsDeadlineAndNamesTheKey) {
  const auto store = client();
  const auto began = Deadline::Clock::now();
  const auto result = store->get("never/set", briefly());
  const auto took = Deadline::Clock::now() - began;
  ASSERT_EQ(result.status().code(), StatusCode::timed_out);
  EXPECT_THAT(result.status().message(), HasSubstr("never/set"));
  EXPECT_GE(took, 30ms);
  EXPECT_LT(took, 10s);
  // The store still works.
  EXPECT_TRUE(store->set("never/set", "after all", soon()).ok());
  EXPECT_EQ(store->get("never/set", Deadline::after(0s)).value(), "after all");
}

TEST_P(StoreConformance, WaitNamesExactlyTheMissingKeys) {
  const auto store = client();
  ASSERT_TRUE(store->set("present", "1", soon()).ok());
  const std::vector<std::string> keys = {"absent-1", "present", "absent-2"};
  const Status status = store->wait(keys, briefly());
  ASSERT_EQ(status.code(), StatusCode::timed_out);
  EXPECT_THAT(status.message(), HasSubstr("absent-1"));
  EXPECT_THAT(status.message(), HasSubstr("absent-2"));
  EXPECT_THAT(status.message(), Not(HasSubstr("present'")));
}

TEST_P(StoreConformance, WaitEndsWhenTheLastOfSeveralKeysIsSet) {
  const auto waiter = client();
  const auto writer = client();
  std::atomic<bool> ready{false};
  std::thread thread([&] {
    EXPECT_TRUE(waiter->wait(std::vector<std::string>{"w1", "w2", "w3"}, soon()).ok());
    EXPECT_TRUE(ready);
  });
  EXPECT_TRUE(writer->set("w3", "", soon()).ok());
  EXPECT_TRUE(writer->set("w1", "", soon()).ok());
  EXPECT_TRUE(writer->remove("w3", soon()).value());
  ready = true;
  EXPECT_TRUE(writer->set("w2", "", soon()).ok());
  EXPECT_TRUE(writer->set("w3", "", soon()).ok());
  thread.join();
}

TEST_P(StoreConformance, WaitForNoKeysReturnsAtOnce) {
  EXPECT_TRUE(client()->wait({}, briefly()).ok());
  EXPECT_TRUE(client()->check({}, soon()).value());
}

TEST_P(StoreConformance, AWaitDoesNotBlockOtherThreadsOfTheClient) {
  const auto store = client();
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back(
        [&, i] { EXPECT_EQ(store->get("mine/" + std::to_string(i), soon()).value(), std::to_string(i)); });
  }
  for (int i = 2; i >= 0; --i) EXPECT_TRUE(store->set("mine/" + std::to_string(i), std::to_string(i), soon()).ok());
  for (auto& thread : waiters) thread.join();
}

TEST_P(StoreConformance, AShortDeadlineIsMetBesideALongOne) {
  const auto store = client();
  std::thread patient([&] { EXPECT_TRUE(store->get("patient", soon()).ok()); });
  EXPECT_EQ(store->get("impatient", briefly()).status().code(), StatusCode::timed_out);
  EXPECT_TRUE(store->set("patient", "", soon()).ok());
  patient.join();
}

TEST_P(StoreConformance, AddCountsFromManyThreadsAndClients) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 50;
  const auto shared = client();
  std::vector<std::thread> threads;
  std::vector<std::vector<std::int64_t>> sums(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i, store = i % 2 == 0 ? shared : client()] {
      for (int round = 0; round < kRounds; ++round) sums[i].push_back(store->add("counter", 1, soon()).value());
    });
  }
  for (auto& thread : threads) thread.join();
  std::set<std::int64_t> seen;
  for (const auto& own : sums) seen.insert(own.begin(), own.end());
  EXPECT_EQ(seen.size(), std::size_t{kThreads * kRounds}) << "two adds saw the same sum";
  EXPECT_EQ(*seen.rbegin(), kThreads * kRounds);
  EXPECT_EQ(shared->get("counter", soon()).value(), std::to_string(kThreads * kRounds));
}

TEST_P(StoreConformance, AddRejectsNonNumbersAndOverflow) {
  const auto store = client();
  ASSERT_TRUE(store->set("text", "12x", soon()).ok());
  EXPECT_EQ(store->add("text", 1, soon()).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(store->get("text", soon()).value(), "12x");
  EXPECT_EQ(store->add("big", INT64_MAX, soon()).value(), INT64_MAX);
  EXPECT_EQ(store->add("big", 1, soon()).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(store->add("big", -1, soon()).value(), INT64_MAX - 1);
}

TEST_P(StoreConformance, CompareSetExchangesOnlyTheExpected) {
  const auto store = client();
  EXPECT_EQ(store->compare_set("c", "x", "y", soon()).status().code(), StatusCode::not_found);
  EXPECT_EQ(store->compare_set("c", std::nullopt, "first", soon()).value(), "first");
  EXPECT_EQ(store->compare_set("c", std::nullopt, "second", soon()).value(), "first");
  EXPECT_EQ(store->compare_set("c", "wrong", "second", soon()).value(), "first");
  EXPECT_EQ(store->compare_set("c", "first", "second", soon()).value(), "second");
  EXPECT_EQ(client()->get("c", soon()).value(), "second");
}

TEST_P(StoreConformance, CompareSetHasOneWinner) {
  constexpr int kThreads = 6;
  constexpr int kRounds = 10;
  std::vector<std::shared_ptr<Store>> stores;
  for (int i = 0; i < kThreads; ++i) stores.push_back(client());
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> winners{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const std::string mine = std::to_string(i);
        if (stores[i]->compare_set("race/" + std::to_string(round), std::nullopt, mine, soon()).value() == mine)
          ++winners;
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(winners, 1);
  }
}

TEST_P(StoreConformance, RemoveReturnsWhetherTheKeyExisted) {
  const auto store = client();
  EXPECT_FALSE(store->remove("r", soon()).value());
  ASSERT_TRUE(store->set("r", "1", soon()).ok());
  EXPECT_TRUE(client()->remove("r", soon()).value());
  EXPECT_FALSE(store->check(std::vector<std::string>{"r"}, soon()).value());
  EXPECT_EQ(store->add("r", 5, soon()).value(), 5);
}

TEST_P(StoreConformance, CheckNeedsAllKeys) {
  const auto store = client();
  ASSERT_TRUE(store->set("k1", "", soon()).ok());
  EXPECT_FALSE(store->check(std::vector<std::string>{"k1", "k2"}, soon()).value());
  ASSERT_TRUE(store->set("k2", "", soon()).ok());
  EXPECT_TRUE(store->check(std::vector<std::string>{"k1", "k2"}, soon()).value());
}

TEST_P(StoreConformance, ListReturnsThePairsOfThePrefixInOrder) {
  const auto store = client();
  for (const char* key : {"l/b", "l/a", "l", "m/a", "l/a/c", "key"}) ASSERT_TRUE(store->set(key, key, soon()).ok());
  const std::map<std::string, std::string> expected = {{"l/a", "l/a"}, {"l/a/c", "l/a/c"}, {"l/b", "l/b"}};
  EXPECT_EQ(client()->list("l/", soon()).value(), expected);
  EXPECT_EQ(client()->list("", soon()).value().size(), 6U);
  EXPECT_TRUE(client()->list("none", soon()).value().empty());
}

TEST_P(StoreConformance, AppendIsAtomic) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 25;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i, store = client()] {
      for (int round = 0; round < kRounds; ++round) {
        EXPECT_TRUE(store->append("log", std::string(4, static_cast<char>('a' + i)), soon()).ok());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const std::string log = client()->get("log", soon()).value();
  ASSERT_EQ(log.size(), std::size_t{kThreads * kRounds * 4});
  for (std::size_t i = 0; i < log.size(); i += 4) EXPECT_EQ(log.substr(i, 4), std::string(4, log[i]));
  EXPECT_EQ(client()->append("log", "xy", soon()).value(), log.size() + 2);
}

TEST_P(StoreConformance, LimitsAreNamedAndChangeNothing) {
  limits_ = {.max_key_bytes = 40, .max_value_bytes = 100, .max_keys = 8, .max_total_bytes = 500};
  const auto store = client();
  const std::string key(41, 'k');
  const auto refused = [&](const Status& status, const char* limit) {
    EXPECT_EQ(status.code(), StatusCode::resource_exhausted);
    EXPECT_THAT(status.message(), HasSubstr(limit));
  };
  refused(store->set(key, "", soon()), "max_key_bytes");
  refused(store->add(key, 1, soon()).status(), "max_key_bytes");
  refused(store->set("a", std::string(101, 'v'), soon()), "max_value_bytes");
  // Far beyond what the server would ever read into memory.
  refused(store->set("a", std::string(100'000, 'v'), soon()), "max_value_bytes");
  refused(store->compare_set("a", std::nullopt, std::string(101, 'v'), soon()).status(), "max_value_bytes");
  EXPECT_FALSE(store->check(std::vector<std::string>{"a"}, soon()).value());

  ASSERT_TRUE(store->set("a", std::string(100, 'v'), soon()).ok());
  refused(store->append("a", "v", soon()).status(), "max_value_bytes");
  EXPECT_EQ(store->get("a", soon()).value(), std::string(100, 'v'));

  ASSERT_TRUE(store->set("b", std::string(100, 'v'), soon()).ok());
  ASSERT_TRUE(store->set("c", std::string(100, 'v'), soon()).ok());
  ASSERT_TRUE(store->set("d", std::string(100, 'v'), soon()).ok());
  refused(store->set("e", std::string(100, 'v'), soon()), "max_total_bytes");
  Status status;
  for (int i = 0; i < 8 && status.ok(); ++i) status = store->set("x" + std::to_string(i), "", soon());
  refused(status, "max_keys");
  EXPECT_TRUE(store->remove("d", soon()).value());
  EXPECT_TRUE(store->set("f", "room again", soon()).ok());
}

TEST_P(StoreConformance, DescribesItself) { EXPECT_THAT(client()->describe(), HasSubstr("the store ")); }

INSTANTIATE_TEST_SUITE_P(Stores, StoreConformance,
                         ::testing::Values(kind<MemoryBackend>("memory"), kind<FileBackend>("file"),
                                           kind<TcpBackend>("tcp"), kind<PrefixBackend<MemoryBackend>>("prefix_memory"),
                                           kind<PrefixBackend<FileBackend>>("prefix_file"),
                                           kind<PrefixBackend<TcpBackend>>("prefix_tcp")),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep
