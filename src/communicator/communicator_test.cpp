// The promises of a Communicator, with ranks as threads of this process.
#include <gtest/gtest.h>
#include <lockstep/communicator/communicator.h>
#include <lockstep/store/stores.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Group = std::shared_ptr<Communicator>;

// Runs `body` on a thread per rank.
void on_all_ranks(const std::vector<Group>& groups, const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (const auto& group : groups) threads.emplace_back([&body, group] { body(*group); });
  for (auto& thread : threads) thread.join();
}

std::vector<float> ramp(std::size_t count, float start) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), start);
  return values;
}

class Threads : public ::testing::TestWithParam<int> {
 protected:
  const int size_ = GetParam();
  const std::vector<Group> groups_ = Communicator::create_threads(size_, {.timeout = 20s});
};

// One rank has formed the group, but cannot use it: its reason must reach the others.
TEST(Communicator, ARankThatCannotUseTheGroupTellsTheOthersWhy) {
  auto store = make_memory_store();
  const auto create = [&](int rank, const std::string& algorithm) {
    return Communicator::create(store, rank, 2, {.algorithm = algorithm});
  };
  std::thread other([&] { EXPECT_THROW(create(1, "no-such-algorithm"), Error); });
  const auto group = create(0, "");
  other.join();
  try {
    group->barrier();
    ADD_FAILURE() << "a barrier without rank 1";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no-such-algorithm"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
  }
}

TEST_P(Threads, AllReduceSumsOverRanksAtEverySize) {
  for (const std::size_t count : {0, 1, 2, 7, 8, 1000, 5000, 100003, 700001}) {
    on_all_ranks(groups_, [&](Communicator& group) {
      auto data = ramp(count, static_cast<float>(group.rank()));
      group.all_reduce(std::span(data));
      const float ranks = static_cast<float>(size_ * (size_ - 1) / 2);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(data[i], static_cast<float>(size_) * static_cast<float>(i) + ranks)
            << "element " << i << " of " << count;
      }
    });
  }
}

TEST_P(Threads, AverageDividesBySize) {
  for (const std::size_t count : {3, 50000}) {
    on_all_ranks(groups_, [&](Communicator& group) {
      std::vector<double> data(count, group.rank() + 1.0);
      std::vector<double> result(count);
      group.all_reduce(ConstBuffer(std::span(data)), std::span(result), {.op = ReduceOp::avg});
      for (const double value : result) ASSERT_EQ(value, (size_ + 1) / 2.0);
      for (const double value : data) ASSERT_EQ(value, group.rank() + 1.0) << "the input was changed";
    });
  }
}

TEST_P(Threads, EveryKindMovesWhatItShould) {
  for (const std::size_t count : {1, 37, 60007}) {
    on_all_ranks(groups_, [&](Communicator& group) {
      const int me = group.rank();
      const auto n = static_cast<std::size_t>(size_);
      const int root = size_ - 1;
      const auto value = [&](int from, int to, std::size_t i) {
        return static_cast<std::int32_t>(i * 3 + static_cast<std::size_t>(from) * 1000 + static_cast<std::size_t>(to));
      };
      std::vector<std::int32_t> one(count);
      std::vector<std::int32_t> all(count * n);
      for (std::size_t i = 0; i < count; ++i) one[i] = value(me, 0, i);
      for (std::size_t p = 0; p < n; ++p) {
        for (std::size_t i = 0; i < count; ++i) all[p * count + i] = value(me, static_cast<int>(p), i);
      }
      const auto expect_gathered = [&](const std::vector<std::int32_t>& out, int to) {
        for (std::size_t p = 0; p < n; ++p) {
          for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out[p * count + i], value(static_cast<int>(p), to, i));
        }
      };

      std::vector<std::int32_t> out(count * n);
      group.all_gather(ConstBuffer(std::span(one)), std::span(out));
      expect_gathered(out, 0);

      std::fill(out.begin(), out.end(), -1);
      group.gather(ConstBuffer(std::span(one)), std::span(out), root);
      if (me == root) expect_gathered(out, 0);

      group.all_to_all(ConstBuffer(std::span(all)), std::span(out));
      expect_gathered(out, me);
      auto in_place = all;
      group.all_to_all(std::span(in_place), std::span(in_place));
      expect_gathered(in_place, me);

      std::vector<std::int32_t> part(count);
      group.scatter(ConstBuffer(std::span(all)), std::span(part), root);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(part[i], value(root, me, i));

      part = one;
      group.broadcast(std::span(part), root);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(part[i], value(root, 0, i));

      group.reduce_scatter(ConstBuffer(std::span(all)), std::span(part), {.op = ReduceOp::max});
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(part[i], value(size_ - 1, me, i));

      std::vector<std::int32_t> sum(me == root ? count : 0);
      group.reduce(ConstBuffer(std::span(one)), std::span(sum), root, {.op = ReduceOp::min});
      for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], value(0, 0, i));

      std::vector<std::size_t> counts;
      for (std::size_t p = 0; p < n; ++p) counts.push_back(count / (p + 1));
      const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      std::vector<std::int32_t> unequal(total);
      group.all_gather_v(ConstBuffer(std::span(one).first(counts[static_cast<std::size_t>(me)])), std::span(unequal),
                         counts);
      std::size_t at = 0;
      for (std::size_t p = 0; p < n; ++p) {
        for (std::size_t i = 0; i < counts[p]; ++i) ASSERT_EQ(unequal[at++], value(static_cast<int>(p), 0, i));
      }
      group.barrier();
    });
  }
}

TEST_P(Threads, AsynchronousOperationsRunInOrderOfIssue) {
  on_all_ranks(groups_, [&](Communicator& group) {
    constexpr int kOperations = 50;
    std::vector<std::vector<float>> data(kOperations, std::vector<float>(1000, 1.0F));
    std::vector<Work> works;
    std::atomic<int> finished{0};
    std::atomic<bool> ordered{true};
    for (int i = 0; i < kOperations; ++i) {
      works.push_back(group.all_reduce_async(std::span(data[static_cast<std::size_t>(i)])));
      works.back().then([&, i](const Status& status) {
        if (!status.ok() || finished.fetch_add(1) != i) ordered = false;
      });
    }
    group.barrier();  // blocking calls queue behind what was issued
    for (auto& work : works) {
      EXPECT_TRUE(work.is_completed());
      work.wait();
    }
    EXPECT_TRUE(ordered);
    EXPECT_EQ(finished, kOperations);
    for (const auto& values : data) EXPECT_EQ(values[999], static_cast<float>(size_));
  });
}

TEST_P(Threads, SubgroupsRunAlongsideTheirParent) {
  on_all_ranks(groups_, [&](Communicator& group) {
    const auto half = group.split(group.rank() % 2, -group.rank());
    std::vector<std::int64_t> in_half(3, group.rank());
    std::vector<std::int64_t> in_world(3, 1);
    const Work world = group.all_reduce_async(std::span(in_world));
    half->all_reduce(std::span(in_half));
    world.wait();
    std::int64_t expected = 0;
    for (int rank = group.rank() % 2; rank < size_; rank += 2) expected += rank;
    EXPECT_EQ(in_half[2], expected);
    EXPECT_EQ(in_world[2], size_);
    EXPECT_EQ(half->rank(), half->size() - 1 - group.rank() / 2) << "the key orders the ranks";
  });
}

TEST_P(Threads, MessagesAreMatchedByTagInBothDirectionsAtOnce) {
  on_all_ranks(groups_, [&](Communicator& group) {
    const int next = (group.rank() + 1) % size_;
    const int previous = (group.rank() + size_ - 1) % size_;
    std::vector<float> large(300000, static_cast<float>(group.rank()));
    std::vector<float> small(2, -static_cast<float>(group.rank()));
    std::vector<float> got_large(large.size());
    std::vector<float> got_small(small.size());
    const Work sent_large = group.send_async(std::span<const float>(large), next, 1);
    const Work sent_small = group.send_async(std::span<const float>(small), next, 2);
    group.recv(std::span(got_small), previous, 2);  // overtakes the first
    group.recv(std::span(got_large), previous, 1);
    sent_large.wait();
    sent_small.wait();
    EXPECT_EQ(got_large.back(), static_cast<float>(previous));
    EXPECT_EQ(got_small.back(), -static_cast<float>(previous));
  });
}

TEST_P(Threads, AMessageFromAnyRankComesWithItsSource) {
  on_all_ranks(groups_, [&](Communicator& group) {
    const std::vector<std::int64_t> own(5, group.rank() * 10);
    if (group.rank() != 0) group.send(std::span(own), 0, 4);
    if (group.rank() == 0) group.send(std::span(own), 0, 4);  // also from itself
    if (group.rank() == 0) {
      std::vector<bool> seen(static_cast<std::size_t>(size_));
      for (int i = 0; i < size_; ++i) {
        std::vector<std::int64_t> got(5, -1);
        const auto source = static_cast<std::size_t>(group.recv_any(std::span(got), 4));
        ASSERT_LT(source, seen.size());
        EXPECT_FALSE(seen[source]) << "two messages from rank " << source;
        seen[source] = true;
        EXPECT_EQ(got[4], static_cast<std::int64_t>(source) * 10);
      }
    }
    group.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Threads, ::testing::Values(1, 2, 3, 4, 5, 8));

Status error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.status();
  }
  return Status();
}

TEST(CommunicatorMessages, ReceivesFromOneRankAndFromAnyAreMatchedInTheOrderOfIssue) {
  on_all_ranks(Communicator::create_threads(2, {.timeout = 20s}), [](Communicator& group) {
    if (group.rank() == 0) {
      std::array<int, 4> got{};
      int source = -1;
      int other_source = -1;
      const auto one = [&](std::size_t index) { return std::span(got).subspan(index, 1); };
      const Work first = group.recv_async(one(0), 1, 3);
      const Work second = group.recv_any_async(one(1), &source, 3);
      const Work third = group.recv_async(one(2), 1, 3);
      const Work other_tag = group.recv_any_async(one(3), &other_source, 9);
      group.barrier();  // all four are issued before the first message
      first.wait();
      second.wait();
      third.wait();
      other_tag.wait();
      EXPECT_EQ(got, (std::array{10, 11, 12, 99}));
      EXPECT_EQ(source, 1);
      EXPECT_EQ(other_source, 1);
    } else {
      group.barrier();
      const std::array<int, 1> other{99};
      group.send(std::span(other), 0, 9);
      for (int value = 10; value < 13; ++value) group.send(std::span<const int>(&value, 1), 0, 3);
    }
    group.barrier();
  });
}

TEST(CommunicatorMessages, AReceiveFromAnyRankHasADeadline) {
  on_all_ranks(Communicator::create_threads(2, {.timeout = 20s}), [](Communicator& group) {
    std::array<float, 2> data{};
    const Status status = error_of([&] {
      if (group.rank() == 0) group.recv_any(std::span(data), 8, {.timeout = 50ms});
      if (group.rank() == 1) group.barrier();
    });
    EXPECT_EQ(status.code(), StatusCode::timed_out) << status.to_string();
    EXPECT_NE(status.message().find("recv from any rank (count 2, f32, tag 8) on rank 0"), std::string::npos)
        << status.message();
  });
}

TEST(CommunicatorErrors, DifferentOperationsFailOnAllRanksAndNameBothSides) {
  const auto groups = Communicator::create_threads(3, {.timeout = 20s});
  on_all_ranks(groups, [](Communicator& group) {
    std::vector<float> data(group.rank() == 1 ? 11 : 10);
    const Status status = error_of([&] { group.all_reduce(std::span(data)); });
    EXPECT_EQ(status.code(), StatusCode::mismatch) << status.to_string();
    EXPECT_NE(status.message().find("count 11"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("count 10"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
    const Status later = error_of([&] { group.barrier(); });
    EXPECT_EQ(later.code(), StatusCode::mismatch) << "a failed group reports it at once";
  });
}

TEST(CommunicatorErrors, OperationsThatDifferOnlyInTheirLabelAreDifferent) {
  on_all_ranks(Communicator::create_threads(2, {.timeout = 20s}), [](Communicator& group) {
    std::vector<float> data(10, 1);
    Operation operation = Operation::all_reduce({data.data(), data.size(), DType::f32});
    operation.tag = 7;
    group.submit(operation).wait();
    EXPECT_EQ(data[0], 2) << "the same label on all ranks";
    operation.tag = group.rank();
    const Status status = error_of([&] { group.submit(operation).wait(); });
    EXPECT_EQ(status.code(), StatusCode::mismatch) << status.to_string();
    EXPECT_NE(status.message().find("rank 1 called all_reduce(count 10, f32, sum, label 1) #2"), std::string::npos)
        << status.message();
  });
}

TEST(CommunicatorErrors, AMismatchReportsWhatWasCalledBefore) {
  const auto message_after = [](int barriers) {
    std::string message;
    on_all_ranks(Communicator::create_threads(2), [&](Communicator& group) {
      for (int i = 0; i < barriers; ++i) group.barrier();
      std::vector<float> data(group.rank() == 1 ? 11 : 10);
      const Status status = error_of([&] { group.all_reduce(std::span(data)); });
      if (group.rank() == 0) message = status.message();
    });
    return message;
  };
  EXPECT_EQ(message_after(0).find("before that"), std::string::npos);
  EXPECT_NE(message_after(1).find(" called barrier #1)"), std::string::npos);
  EXPECT_NE(message_after(2).find(" called barrier #1, barrier #2)"), std::string::npos);
  EXPECT_NE(message_after(7).find(" called barrier #5, barrier #6, barrier #7)"), std::string::npos);
}

TEST(CommunicatorErrors, ARankThatDoesNotTakePartIsNamedAtTheDeadline) {
  const auto groups = Communicator::create_threads(3, {.timeout = 20s});
  on_all_ranks(groups, [](Communicator& group) {
    group.barrier();  // so that a thread that starts late does not count as missing
    if (group.rank() == 2) {
      while (group.health().ok()) std::this_thread::sleep_for(5ms);
      return;
    }
    const Status status = error_of([&] { group.barrier({.timeout = 1s}); });
    EXPECT_EQ(status.code(), StatusCode::timed_out) << status.to_string();
    EXPECT_NE(status.message().find("rank 2 (host"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("rank 1 (host"), std::string::npos) << status.message();
  });
}

TEST(CommunicatorErrors, AbortEndsPendingOperationsOnAllRanks) {
  const auto groups = Communicator::create_threads(2, {.timeout = 20s});
  std::vector<float> data(100000);
  const Work waiting = groups[0]->all_reduce_async(std::span(data));
  std::vector<float> message(1);
  const Work receiving = groups[1]->recv_async(std::span(message), 0);
  groups[1]->abort("the operator stopped the job");
  const Status status = waiting.wait(Deadline::after(10s));
  EXPECT_EQ(status.code(), StatusCode::aborted) << status.to_string();
  EXPECT_NE(status.message().find("stopped the job"), std::string::npos);
  EXPECT_EQ(receiving.wait(Deadline::after(10s)).code(), StatusCode::aborted);
}

TEST(CommunicatorErrors, APeerThatLeftIsNamed) {
  auto groups = Communicator::create_threads(2, {.timeout = 20s});
  on_all_ranks(groups, [](Communicator& group) { group.barrier(); });
  const Group survivor = groups[0];
  groups.clear();
  const Status status = error_of([&] { survivor->barrier(); });
  EXPECT_EQ(status.code(), StatusCode::peer_lost) << status.to_string();
  EXPECT_NE(status.message().find("has left the group"), std::string::npos) << status.message();
}

// What programs write for "never" is more than the clock can count.
TEST(CommunicatorTimeouts, MayBeTheLongestDuration) {
  static constexpr auto kNever = std::chrono::milliseconds::max();
  const auto groups = Communicator::create_threads(
      2, {.init_timeout = kNever, .timeout = kNever, .peer_timeout = kNever, .warn_after = kNever});
  on_all_ranks(groups, [](Communicator& group) {
    float value = 1, received = 0;
    if (group.rank() == 1) std::this_thread::sleep_for(200ms);
    group.all_reduce(std::span(&value, 1));
    EXPECT_EQ(value, 2);
    const Work work = group.submit({.kind = group.rank() == 0 ? OperationKind::recv : OperationKind::send,
                                    .input = std::span(&value, 1),
                                    .output = std::span(&received, 1),
                                    .peer = 1 - group.rank(),
                                    .timeout = kNever});
    EXPECT_TRUE(work.wait(Deadline::after(kNever)).ok());
    EXPECT_EQ(received, group.rank() == 0 ? 2 : 0);
  });
}

TEST(CommunicatorErrors, InvalidArgumentsThrowAndLeaveTheGroupUsable) {
  const auto group = Communicator::create_threads(1)[0];
  std::vector<float> data(4);
  EXPECT_EQ(error_of([&] { group->all_reduce(std::span(data), {.op = ReduceOp::bit_and}); }).code(),
            StatusCode::invalid_argument);
  EXPECT_EQ(error_of([&] { group->broadcast(std::span(data), 1); }).code(), StatusCode::invalid_argument);
  EXPECT_EQ(error_of([&] { group->all_reduce(ConstBuffer(std::span(data).first(3)), std::span(data).last(3)); }).code(),
            StatusCode::invalid_argument);
  EXPECT_EQ(error_of([&] { group->send(std::span<const float>(data), -1); }).code(), StatusCode::invalid_argument);
  EXPECT_EQ(error_of([&] { group->new_group(std::vector<int>{0, 0}); }).code(), StatusCode::invalid_argument);
  group->all_reduce(std::span(data));
}

TEST(RegisteredMemory, OutlivesItsGroup) {
  auto group = Communicator::create_threads(1)[0];
  const auto memory = group->allocate(100000);
  EXPECT_EQ(memory->size(), 100000U);
  group.reset();
  memory->data()[99999] = std::byte{1};
  EXPECT_EQ(memory->data()[0], std::byte{0});
}

}  // namespace
}  // namespace lockstep
