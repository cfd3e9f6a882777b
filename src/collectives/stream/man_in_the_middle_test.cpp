// An all-reduce between two hosts, and a proxy between them that sees every byte and may change the records: it learns
// nothing, and no rank ever gets a wrong result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/net/accept_channel.h"
#include "base/net/connect_channel.h"
#include "base/net/socket.h"
#include "collectives/stream/algorithms.h"
#include "collectives/testing/stream_test_group.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using stream_test::TestScope;

using Records = std::vector<Bytes>;

// Passes TLS records from one socket to another through `change`, which gets the number of the record and may replace
// it by any records.
class Proxy {
 public:
  using Change = std::function<Records(int number, Bytes record)>;

  Proxy(UniqueFd left, UniqueFd right, Change change)
      : left_(std::move(left)), right_(std::move(right)), change_(std::move(change)) {
    threads_[0] = std::thread([this] { pass(left_.get(), right_.get(), true); });
    threads_[1] = std::thread([this] { pass(right_.get(), left_.get(), false); });
  }
  ~Proxy() { stop(); }
  void stop() {
    for (const int fd : {left_.get(), right_.get()}) ::shutdown(fd, SHUT_RDWR);
    for (auto& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  // Everything that was on the wire, in both directions. After stop().
  std::string seen() const { return seen_[0] + seen_[1]; }

 private:
  void pass(int from, int to, bool changes) {
    std::string& seen = seen_[changes ? 0 : 1];
    const Deadline deadline = Deadline::after(60s);
    for (int number = 0;; ++number) {
      Bytes record(5);
      if (!receive_all(from, record, deadline).ok()) break;
      const auto size = (std::to_integer<std::size_t>(record[3]) << 8) + std::to_integer<std::size_t>(record[4]);
      record.resize(5 + size);
      if (!receive_all(from, std::span(record).subspan(5), deadline).ok()) break;
      seen.append(reinterpret_cast<const char*>(record.data()), record.size());
      Records records;
      if (changes && change_) {
        records = change_(number, std::move(record));
      } else {
        records.push_back(std::move(record));
      }
      bool sent = true;
      for (const Bytes& each : records) sent = sent && send_all(to, each, deadline).ok();
      if (!sent) break;
    }
    ::shutdown(to, SHUT_WR);
  }

  UniqueFd left_;
  UniqueFd right_;
  const Change change_;
  std::string seen_[2];
  std::thread threads_[2];
};

// Two ranks whose link passes through a proxy.
class ProxiedRanks {
 public:
  explicit ProxiedRanks(Proxy::Change change, const std::string& group = "group#1")
      : stop_fd_(::eventfd(0, EFD_CLOEXEC)) {
    const Secret secret("0123456789abcdef0123456789abcdef");
    const ConnectionIdentity link{.role = "data", .group = group, .from_rank = 1, .to_rank = 0, .index = 0};
    auto [one, proxy_one] = stream_test::connected_pair(stream_test::LinkKind::tcp);
    auto [zero, proxy_zero] = stream_test::connected_pair(stream_test::LinkKind::tcp);
    proxy_.emplace(std::move(proxy_one), std::move(proxy_zero), std::move(change));
    Result<Channel> connected = Status(StatusCode::internal, "not run");
    std::thread connector([&, fd = std::move(one)]() mutable {
      connected = connect_channel(std::move(fd), secret, link, EncryptionPolicy::all, Deadline::after(1s));
    });
    Result<Channel> accepted = accept(std::move(zero), secret, link);
    connector.join();
    if (!connected.ok() || !accepted.ok()) return;
    use(0, 1, *std::move(accepted));
    use(1, 0, *std::move(connected));
  }
  bool connected() const { return streams_[0] && streams_[1]; }

  // Sums two buffers of one repeated number; the result of each rank, if it got one.
  struct Sums {
    Status status[2];
    bool wrong = false;
  };
  Sums all_reduce(std::size_t count, std::int32_t value) {
    Sums sums;
    std::thread threads[2];
    std::atomic<bool> wrong = false;
    for (int rank = 0; rank < 2; ++rank) {
      threads[rank] = std::thread([&, rank] {
        std::vector<std::int32_t> buffer(count, value);
        CollectiveCall call;
        call.descriptor = {
            .sequence = 1, .kind = OperationKind::all_reduce, .dtype = DType::i32, .count = buffer.size()};
        call.input = call.output = reinterpret_cast<std::byte*>(buffer.data());
        auto& streams = *streams_[static_cast<std::size_t>(rank)];
        TestScope scope(stop_, stop_fd_.get(), Deadline::after(2s));
        sums.status[rank] = stream_ring(whole_group(call, rank, streams.all_ranks()), streams, scope);
        if (sums.status[rank].ok() &&
            !std::all_of(buffer.begin(), buffer.end(), [&](std::int32_t sum) { return sum == 2 * value; })) {
          wrong = true;
        }
        // As a rank that fails does: the other one must not wait for it.
        if (!sums.status[rank].ok()) streams_[static_cast<std::size_t>(rank)].reset();
      });
    }
    for (auto& thread : threads) thread.join();
    sums.wrong = wrong;
    return sums;
  }
  std::string wire() {
    proxy_->stop();
    return proxy_->seen();
  }

 private:
  static Result<Channel> accept(UniqueFd fd, const Secret& secret, const ConnectionIdentity& link) {
    const AcceptRules rules{.secret = secret, .group = link.group, .keys = LinkKeyRing(secret, {link})};
    ChannelAcceptor acceptor(std::move(fd), rules, {});
    while (!acceptor.accepted()) {
      LOCKSTEP_RETURN_IF_ERROR(wait_ready(acceptor.fd(), POLLIN, Deadline::after(1s)));
      LOCKSTEP_RETURN_IF_ERROR(acceptor.advance());
    }
    return acceptor.take();
  }
  void use(int rank, std::size_t peer, Channel channel) {
    std::vector<std::vector<Channel>> connections(2);
    connections[peer].push_back(std::move(channel));
    streams_[static_cast<std::size_t>(rank)] = std::make_unique<StreamTransport>(rank, std::move(connections));
  }

  const std::atomic<bool> stop_{false};
  UniqueFd stop_fd_;
  std::optional<Proxy> proxy_;
  std::unique_ptr<StreamTransport> streams_[2];
};

Records unchanged(Bytes record) {
  Records records;
  records.push_back(std::move(record));
  return records;
}

constexpr std::int32_t kKnown = 0x2A17C0DE;

TEST(ManInTheMiddle, ReadsNothingOfAnAllReduce) {
  ProxiedRanks ranks({});
  ASSERT_TRUE(ranks.connected());
  const auto sums = ranks.all_reduce(100'000, kKnown);
  EXPECT_TRUE(sums.status[0].ok()) << sums.status[0].to_string();
  EXPECT_TRUE(sums.status[1].ok()) << sums.status[1].to_string();
  EXPECT_FALSE(sums.wrong);
  const std::string wire = ranks.wire();
  EXPECT_GT(wire.size(), 400'000U);
  for (const std::int32_t known : {kKnown, 2 * kKnown}) {
    std::string twice(2 * sizeof(known), ' ');
    for (int i = 0; i < 2; ++i) std::memcpy(twice.data() + i * sizeof(known), &known, sizeof(known));
    EXPECT_EQ(wire.find(twice), std::string::npos);
  }
  EXPECT_EQ(wire.find("group#1"), std::string::npos);
}

class ManInTheMiddleChanges : public ::testing::TestWithParam<int> {};

// Each record in turn, those of the handshake included.
TEST_P(ManInTheMiddleChanges, NeverMakesAWrongResult) {
  const int target = GetParam();
  const auto expect_error = [](const char* what, Proxy::Change change) {
    ProxiedRanks ranks(std::move(change));
    if (!ranks.connected()) return;
    const auto sums = ranks.all_reduce(100'000, 0x11111111);
    EXPECT_FALSE(sums.wrong) << what;
    EXPECT_FALSE(sums.status[0].ok() && sums.status[1].ok()) << what << " was not noticed";
  };
  // The first two records of the connector are ClientHello and change_cipher_spec, which means nothing in TLS 1.3.
  const auto hits = [target](int number) { return number == target; };
  expect_error("a flipped bit", [=](int number, Bytes record) {
    if (hits(number)) record[5 + (record.size() - 5) / 2] ^= std::byte{1};
    return unchanged(std::move(record));
  });
  expect_error("a lost record",
               [=](int number, Bytes record) { return hits(number) ? Records() : unchanged(std::move(record)); });
  expect_error("a repeated record", [=](int number, Bytes record) {
    Records records = unchanged(record);
    if (hits(number)) records.push_back(std::move(record));
    return records;
  });
  Bytes held;
  expect_error("reordered records", [&](int number, Bytes record) {
    if (hits(number)) {
      held = std::move(record);
      return Records();
    }
    Records records = unchanged(std::move(record));
    if (!held.empty()) records.push_back(std::exchange(held, {}));
    return records;
  });
}

INSTANTIATE_TEST_SUITE_P(Record, ManInTheMiddleChanges, ::testing::Values(0, 2, 3, 4, 5, 6, 9, 15));

// The record after the one with the header of the operation: the ranks must not wait for their deadline.
TEST(ManInTheMiddle, ADamagedRecordIsReportedAtOnceAndNamed) {
  for (const int target : {6, 7, 9}) {
    ProxiedRanks ranks([=](int number, Bytes record) {
      if (number == target) record.back() ^= std::byte{1};
      return unchanged(std::move(record));
    });
    ASSERT_TRUE(ranks.connected());
    const auto sums = ranks.all_reduce(100'000, 3);
    EXPECT_EQ(sums.status[0].code(), StatusCode::peer_lost) << target << ": " << sums.status[0].to_string();
    EXPECT_THAT(sums.status[0].message(), ::testing::HasSubstr("rank 1")) << target;
    EXPECT_THAT(sums.status[0].message(), ::testing::HasSubstr("127.0.0.1")) << target;
    EXPECT_THAT(sums.status[0].message(), ::testing::HasSubstr("the encrypted stream was damaged")) << target;
    EXPECT_EQ(sums.status[1].code(), StatusCode::peer_lost) << target << ": " << sums.status[1].to_string();
  }
}

TEST(ManInTheMiddle, CannotSpliceRecordsOfAnotherLink) {
  std::mutex mutex;
  Records foreign;
  {
    ProxiedRanks other(
        [&](int, Bytes record) {
          const std::lock_guard lock(mutex);
          foreign.push_back(record);
          return unchanged(std::move(record));
        },
        "group#2");
    ASSERT_TRUE(other.connected());
    ASSERT_FALSE(other.all_reduce(100'000, 7).wrong);
    other.wire();
  }
  ASSERT_GT(foreign.size(), 8U);
  ProxiedRanks ranks([&](int number, Bytes record) { return unchanged(number == 7 ? foreign[7] : std::move(record)); });
  ASSERT_TRUE(ranks.connected());
  const auto sums = ranks.all_reduce(100'000, 9);
  EXPECT_FALSE(sums.wrong);
  EXPECT_FALSE(sums.status[0].ok() && sums.status[1].ok());
}

}  // namespace
}  // namespace lockstep
