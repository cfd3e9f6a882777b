#include "ddp/model_fuzz/rank_processes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <sstream>

#include "ddp/model_fuzz/rank_loop.h"

namespace lockstep::fuzz {

namespace {

constexpr double kCaseSeconds = 120;  // more than any operation of a group may take
constexpr const char* kStorePort = "MODEL_FUZZ_STORE_PORT";
constexpr const char* kFirstCase = "MODEL_FUZZ_FIRST_CASE";

std::string command_key(int number) { return fmt::format("case/{}", number); }
std::string outcome_key(int number, int rank) { return fmt::format("outcome/{}/{}", number, rank); }

int rank_main() {
  const auto port = static_cast<std::uint16_t>(std::atoi(std::getenv(kStorePort)));
  const std::shared_ptr<TcpStore> store =
      value_or_throw(TcpStore::connect("127.0.0.1", port, {}, testing::in_seconds(30)));
  RankLoop loop;
  for (int number = std::atoi(std::getenv(kFirstCase));; ++number) {
    const std::string text = value_or_throw(store->get(command_key(number), testing::in_seconds(3600)));
    if (text == "end") return 0;
    std::istringstream words(text);
    int generation = 0;
    std::uint64_t seed = 0;
    words >> generation >> seed;
    std::vector<int> edits;
    for (int edit; words >> edit;) edits.push_back(edit);
    if (const std::optional<Outcome> outcome = loop.run(generation, seed, edits)) {
      throw_if_error(store->set(outcome_key(number, loop.rank()), to_text(*outcome), testing::in_seconds(30)));
    }
  }
}
LOCKSTEP_PROCESS_ROLE(model_fuzz_rank) { return rank_main(); }

}  // namespace

RankProcesses::RankProcesses() {
  server_ = value_or_throw(TcpStoreServer::start({}));
  store_ = value_or_throw(TcpStore::connect("127.0.0.1", server_->port(), {}, testing::in_seconds(10)));
  start();
}

RankProcesses::~RankProcesses() {
  if (!ranks_) return;
  (void)store_->set(command_key(number_), "end", testing::in_seconds(5));
  (void)ranks_->wait_all(testing::in_seconds(20));  // the destructor kills what is left
}

void RankProcesses::start() {
  testing::StartOptions options;
  options.environment = {{kStorePort, std::to_string(server_->port())}, {kFirstCase, std::to_string(number_)}};
  ranks_.reset();
  ranks_.emplace(testing::start_ranks(kMostRanks, "model_fuzz_rank", options));
}

Outcome RankProcesses::run(const Case& item) {
  const int number = number_++;
  const int world = item.training.world;
  std::vector<std::string> keys;
  for (int rank = 0; rank < world; ++rank) keys.push_back(outcome_key(number, rank));
  throw_if_error(store_->set(command_key(number),
                             fmt::format("{} {} {}", generations_[world], item.seed, fmt::join(item.edits, " ")),
                             testing::in_seconds(10)));
  const Deadline deadline = testing::in_seconds(kCaseSeconds);
  bool complete = false;
  std::optional<std::string> ended;
  while (!complete && !ended && !deadline.expired()) {
    complete = store_->wait(keys, testing::in_seconds(1).earlier(deadline)).ok();
    for (int rank = 0; rank < kMostRanks && !complete; ++rank) {
      if (const auto status = ranks_->exit_status(rank)) ended = fmt::format("rank {}: {}", rank, status->to_string());
    }
  }
  Outcome outcome;
  if (complete) {
    std::vector<Outcome> outcomes;
    for (const std::string& key : keys) {
      outcomes.push_back(outcome_from_text(value_or_throw(store_->get(key, testing::in_seconds(10)))));
      (void)store_->remove(key, testing::in_seconds(10));
    }
    outcome = worst_of(outcomes);
    if (outcome.kind != Outcome::Kind::fine && outcome.kind != Outcome::Kind::wrong) ++generations_[world];
  } else {
    outcome = ended ? Outcome{Outcome::Kind::crashed, "process ended", *ended + "\n" + ranks_->report()}
                    : Outcome{Outcome::Kind::hung, "no outcome",
                              fmt::format("after {} s\n{}", kCaseSeconds, ranks_->report())};
    start();
  }
  return outcome;
}

}  // namespace lockstep::fuzz
