// Broadcast, gathers, scatter, all_to_all and barrier over streams: every byte is at its place, for
// every number of ranks and count, in place and out of place.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "collectives/stream/algorithms.h"
#include "collectives/testing/stream_test_group.h"

namespace lockstep {
namespace {

using stream_test::GroupSetup;
using stream_test::LinkKind;
using stream_test::StreamTestGroup;
using Bytes = std::vector<std::byte>;

// Byte i of what rank `from` has for rank `to`.
std::byte content(std::size_t from, std::size_t to, std::size_t i) {
  return static_cast<std::byte>(from * 31 + to * 7 + i * 13 + (i >> 8) * 5);
}
Bytes contents(std::size_t from, std::size_t to, std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = content(from, to, i);
  return bytes;
}
Bytes concatenate(const std::vector<Bytes>& chunks) {
  Bytes all;
  for (const Bytes& chunk : chunks) all.insert(all.end(), chunk.begin(), chunk.end());
  return all;
}

class StreamMovement : public ::testing::TestWithParam<int> {
 protected:
  StreamMovement()
      : group_({.size = GetParam(),
                .kind = GetParam() % 2 == 0 ? LinkKind::tcp : LinkKind::unix_socket,
                .streams = GetParam() % 3 == 0 ? 2 : 1,
                .options = {.stripe_bytes = 1000, .segment_bytes = 4096, .call_bytes = 10000}}) {}

  std::size_t n() const { return group_.size(); }
  std::vector<std::size_t> counts() const { return {0, 1, n() - 1, n(), n() + 1, 1000, 300007}; }

  void run(OpDescriptor descriptor, StreamFunction function,
           const std::function<void(std::size_t, CollectiveCall&)>& set_buffers) {
    descriptor.sequence = ++sequence_;
    const auto results = group_.run([&](std::size_t rank, StreamTransport& streams, WaitScope& scope) {
      CollectiveCall call;
      call.descriptor = descriptor;
      set_buffers(rank, call);
      return function(whole_group(call, static_cast<int>(rank), streams.all_ranks()), streams, scope);
    });
    for (const Status& status : results) ASSERT_TRUE(status.ok()) << status.to_string();
  }

  StreamTestGroup group_;
  std::uint64_t sequence_ = 0;
};

TEST_P(StreamMovement, BroadcastReachesEveryRankFromAnyRoot) {
  for (const StreamFunction function : {stream_broadcast_tree, stream_broadcast_chain}) {
    for (const std::size_t root : {std::size_t{0}, n() / 2, n() - 1}) {
      for (const std::size_t count : counts()) {
        if (count > 1000 && root > 0) continue;
        SCOPED_TRACE(fmt::format("root {} count {}", root, count));
        std::vector<Bytes> buffers(n(), Bytes(count));
        buffers[root] = contents(root, 0, count);
        ASSERT_NO_FATAL_FAILURE(
            run({.kind = OperationKind::broadcast, .root = static_cast<std::int32_t>(root), .count = count}, function,
                [&](std::size_t rank, CollectiveCall& call) { call.input = call.output = buffers[rank].data(); }));
        for (std::size_t r = 0; r < n(); ++r) ASSERT_TRUE(buffers[r] == buffers[root]) << "rank " << r;
      }
    }
  }
}

TEST_P(StreamMovement, AllGatherGivesEveryRankAllChunks) {
  for (const StreamFunction function :
       {stream_all_gather_ring, stream_exchange, stream_small, stream_small_oversubscribed}) {
    for (const std::size_t count : counts()) {
      if (count > 1000 && n() > 5) continue;
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(fmt::format("count {} in place {}", count, in_place));
        std::vector<Bytes> chunks;
        for (std::size_t r = 0; r < n(); ++r) chunks.push_back(contents(r, 0, count));
        const Bytes wanted = concatenate(chunks);
        std::vector<Bytes> outputs(n(), Bytes(wanted.size()));
        ASSERT_NO_FATAL_FAILURE(run({.kind = OperationKind::all_gather, .count = count}, function,
                                    [&](std::size_t rank, CollectiveCall& call) {
                                      call.output = outputs[rank].data();
                                      call.input = chunks[rank].data();
                                      if (!in_place) return;
                                      call.input = call.output + rank * count;
                                      std::ranges::copy(chunks[rank], call.output + rank * count);
                                    }));
        for (std::size_t r = 0; r < n(); ++r) ASSERT_TRUE(outputs[r] == wanted) << "rank " << r;
      }
    }
  }
}

TEST_P(StreamMovement, AllGatherOfUnequalChunksIncludingEmptyOnes) {
  for (const StreamFunction function : {stream_all_gather_ring, stream_exchange}) {
    std::vector<std::size_t> sizes;
    std::vector<Bytes> chunks;
    for (std::size_t r = 0; r < n(); ++r) {
      sizes.push_back(r % 3 == 1 ? 0 : 5000 * r + 3);
      chunks.push_back(contents(r, 0, sizes.back()));
    }
    const Bytes wanted = concatenate(chunks);
    std::vector<Bytes> outputs(n(), Bytes(wanted.size()));
    ASSERT_NO_FATAL_FAILURE(run({.kind = OperationKind::all_gather_v, .count = wanted.size(), .digest = 4711}, function,
                                [&](std::size_t rank, CollectiveCall& call) {
                                  call.input = chunks[rank].data();
                                  call.output = outputs[rank].data();
                                  call.counts = sizes;
                                }));
    for (std::size_t r = 0; r < n(); ++r) ASSERT_TRUE(outputs[r] == wanted) << "rank " << r;
  }
}

TEST_P(StreamMovement, GatherAndScatterMoveEveryChunk) {
  for (const std::size_t root : {std::size_t{0}, n() - 1}) {
    for (const std::size_t count : counts()) {
      SCOPED_TRACE(fmt::format("root {} count {}", root, count));
      std::vector<Bytes> chunks;
      for (std::size_t r = 0; r < n(); ++r) chunks.push_back(contents(r, 0, count));
      Bytes gathered(n() * count);
      const auto root_rank = static_cast<std::int32_t>(root);
      ASSERT_NO_FATAL_FAILURE(run({.kind = OperationKind::gather, .root = root_rank, .count = count}, stream_exchange,
                                  [&](std::size_t rank, CollectiveCall& call) {
                                    call.input = chunks[rank].data();
                                    if (rank == root) call.output = gathered.data();
                                  }));
      ASSERT_TRUE(gathered == concatenate(chunks));
      std::vector<Bytes> scattered(n(), Bytes(count));
      ASSERT_NO_FATAL_FAILURE(run({.kind = OperationKind::scatter, .root = root_rank, .count = count}, stream_exchange,
                                  [&](std::size_t rank, CollectiveCall& call) {
                                    if (rank == root) call.input = gathered.data();
                                    call.output = scattered[rank].data();
                                  }));
      ASSERT_TRUE(scattered == chunks);
    }
  }
}

TEST_P(StreamMovement, AllToAllInPlaceAndOutOfPlace) {
  for (const std::size_t count : counts()) {
    for (const bool in_place : {false, true}) {
      SCOPED_TRACE(fmt::format("count {} in place {}", count, in_place));
      std::vector<Bytes> inputs;
      for (std::size_t r = 0; r < n(); ++r) {
        std::vector<Bytes> chunks;
        for (std::size_t to = 0; to < n(); ++to) chunks.push_back(contents(r, to, count));
        inputs.push_back(concatenate(chunks));
      }
      std::vector<Bytes> outputs = in_place ? inputs : std::vector<Bytes>(n(), Bytes(n() * count));
      ASSERT_NO_FATAL_FAILURE(run({.kind = OperationKind::all_to_all, .count = count}, stream_exchange,
                                  [&](std::size_t rank, CollectiveCall& call) {
                                    call.output = outputs[rank].data();
                                    call.input = in_place ? call.output : inputs[rank].data();
                                  }));
      for (std::size_t r = 0; r < n(); ++r) {
        for (std::size_t from = 0; from < n(); ++from) {
          const auto chunk = outputs[r].begin() + static_cast<std::ptrdiff_t>(from * count);
          ASSERT_TRUE(std::ranges::equal(std::span(chunk, count), contents(from, r, count))) << from << " to " << r;
        }
      }
    }
  }
}

TEST_P(StreamMovement, NoRankLeavesABarrierBeforeAllHaveReachedIt) {
  std::atomic<std::size_t> arrived{0};
  for (std::size_t round = 1; round <= 40; ++round) {
    const StreamFunction function = round % 2 == 0 ? stream_small : stream_small_oversubscribed;
    std::vector<std::size_t> seen(n());
    const auto results = group_.run([&](std::size_t rank, StreamTransport& streams, WaitScope& scope) {
      CollectiveCall call;
      call.descriptor.sequence = round;
      ++arrived;
      Status status = function(whole_group(call, static_cast<int>(rank), streams.all_ranks()), streams, scope);
      seen[rank] = arrived.load();
      return status;
    });
    for (const Status& status : results) ASSERT_TRUE(status.ok()) << status.to_string();
    for (const std::size_t each : seen) ASSERT_GE(each, round * n());
  }
}

// One rank may be several operations ahead of another: bytes of the next operation are not taken for this one.
TEST_P(StreamMovement, OperationsFollowEachOtherWithoutABarrier) {
  const auto results = group_.run([&](std::size_t rank, StreamTransport& streams, WaitScope& scope) {
    Bytes buffer(3000);
    for (std::uint64_t i = 1; i <= 200; ++i) {
      CollectiveCall call;
      const std::size_t root = i % n();
      call.descriptor = {
          .sequence = i, .kind = OperationKind::broadcast, .root = static_cast<std::int32_t>(root), .count = i * 15};
      if (rank == root) std::ranges::copy(contents(i, 0, call.count()), buffer.begin());
      call.input = call.output = buffer.data();
      const auto function = i % 3 == 0 ? stream_broadcast_chain : stream_broadcast_tree;
      LOCKSTEP_RETURN_IF_ERROR(
          function(whole_group(call, static_cast<int>(rank), streams.all_ranks()), streams, scope));
      if (!std::ranges::equal(std::span(buffer).first(call.count()), contents(i, 0, call.count()))) {
        return Status(StatusCode::internal, fmt::format("wrong bytes in operation {}", i));
      }
    }
    return Status();
  });
  for (const Status& status : results) ASSERT_TRUE(status.ok()) << status.to_string();
}

INSTANTIATE_TEST_SUITE_P(Ranks, StreamMovement, ::testing::Values(1, 2, 3, 4, 5, 8, 11),
                         [](const auto& info) { return fmt::format("of{}", info.param); });

}  // namespace
}  // namespace lockstep
