#include "lockstep/elastic/run.h"

#include <fmt/format.h>
#include <torch/optim/optimizer.h>
#include <xxhash.h>

#include <chrono>

#include "base/failpoint.h"
#include "base/log.h"
#include "ddp/elastic/elastic_state.h"
#include "ddp/elastic/running.h"
#include "ddp/group/default_group.h"
#include "elastic/participant.h"
#include "lockstep/base/deadline.h"
#include "lockstep/ddp/init.h"
#include "lockstep/record/phase.h"
#include "record/recorder.h"

namespace lockstep::elastic {

// One generation as the training sees it.
class Context::Generation {
 public:
  Generation(Participant& participant, detail::ElasticState& state, Participant::RankStart generation)
      : participant_(participant),
        state_(state),
        generation_(generation.generation),
        group_(make_process_group(std::move(generation.group))) {}

  std::optional<std::vector<std::size_t>> next_batch(std::size_t batch_size);
  void commit();
  // All ranks have reached this point: the function returned.
  void end();

  Participant& participant_;
  detail::ElasticState& state_;
  const std::int64_t generation_;
  std::shared_ptr<ProcessGroup> group_;
  std::optional<DistributedSampler> sampler_;  // of the present epoch
};

namespace {

// Leaves the training function at a step boundary: newcomers wait.
struct Regroup {};

bool is_loss(StatusCode code) {
  return code == StatusCode::peer_lost || code == StatusCode::aborted || code == StatusCode::timed_out;
}

ParticipantOptions participant_options(const Options& options) {
  ParticipantOptions result;
  result.init.group.timeout = options.timeout;
  result.init.group.init_timeout = options.init_timeout;
  result.init.group.peer_timeout = options.peer_timeout;
  result.policy = {.min_ranks = options.min_ranks,
                   .max_ranks = options.max_ranks,
                   .silent_timeout = options.silent_timeout,
                   .straggler_timeout = options.straggler_timeout,
                   .quorum_timeout = options.quorum_timeout};
  return ParticipantOptions::from_environment(result);
}

// What each rank has at the start of a generation.
struct Possession {
  std::int64_t has_state = 0;
  std::int64_t hash = 0;     // of the state
  std::int64_t buffers = 0;  // their hash
  bool has_state_of(const Possession& other) const { return has_state == other.has_state && hash == other.hash; }
};

// Collective; by rank.
std::vector<Possession> gather_possessions(ProcessGroup& group, const detail::ElasticState& state) {
  const bool has_state = state.progress() >= 0;
  const auto hash = has_state ? static_cast<std::int64_t>(state.hash()) : 0;
  const auto buffers = has_state ? static_cast<std::int64_t>(state.hash_of_buffers()) : 0;
  const at::Tensor all = at::empty({group.size(), 3}, at::kLong);
  group.all_gather(at::tensor({std::int64_t{has_state}, hash, buffers}, at::kLong), all, {}).wait();
  std::vector<Possession> result;
  for (int rank = 0; rank < group.size(); ++rank) {
    const at::Tensor one = all[rank];
    result.push_back({one[0].item<std::int64_t>(), one[1].item<std::int64_t>(), one[2].item<std::int64_t>()});
  }
  return result;
}

// Collective: all ranks continue from the state of `source`. `expected`: the members' steps differ, so states do, too.
void equalise_states(ProcessGroup& group, detail::ElasticState& state, int source, bool expected,
                     std::int64_t generation) {
  const auto began = Deadline::Clock::now();
  const auto milliseconds_since = [](Deadline::Clock::time_point time) {
    return std::chrono::duration<double, std::milli>(Deadline::Clock::now() - time).count();
  };
  const std::vector<Possession> possessions = gather_possessions(group, state);
  const double compared = milliseconds_since(began);
  const Possession& right = possessions[static_cast<std::size_t>(source)];
  if (right.has_state == 0) {
    throw Error({StatusCode::internal, fmt::format("rank {} is to send its state, but has none", source)});
  }
  std::vector<int> receivers;
  bool differ = false;
  bool buffers_differ = false;
  for (int rank = 0; rank < group.size(); ++rank) {
    const Possession& one = possessions[static_cast<std::size_t>(rank)];
    buffers_differ |= one.has_state != 0 && one.buffers != right.buffers;
    if (one.has_state_of(right)) continue;
    receivers.push_back(rank);
    differ |= one.has_state != 0;
  }
  // Before the first step DDP would do the same, without a word.
  if (differ && !expected && group.rank() == 0 && generation > 1) {
    log_warn(
        "the ranks have different states at the same step; all take that of one. Did a rank change its parameters, "
        "its optimizer or its learning rate differently from the others?");
  }
  const bool receives = !possessions[static_cast<std::size_t>(group.rank())].has_state_of(right);
  if (receives || (group.rank() == source && !receivers.empty())) {
    failpoint("state.transfer");
    state.transfer(group, source, receivers);
    failpoint("state.transferred");
  }
  if (receives && static_cast<std::int64_t>(state.hash()) != right.hash) {
    throw Error({StatusCode::internal, fmt::format("the state that rank {} sent has arrived changed", source)});
  }
  if (buffers_differ) state.take_buffers(group, source);
  if (receivers.empty() || (!receives && group.rank() != source)) return;
  log_info("{} the state after {:.0f} ms, of which {:.0f} ms until all ranks had compared theirs",
           group.rank() == source ? "sent" : "received", milliseconds_since(began), compared);
}

// True: the training is over. False: the ranks change. Throws what the training threw if no peer was lost.
bool run_generation(Participant& participant, detail::ElasticState& state, Participant::RankStart next,
                    const std::function<void(Context&)>& train) {
  const int source = next.source;
  const bool states_differ = next.transfer;
  detail::set_present_generation({.job = next.job, .number = next.generation});
  Context::Generation generation(participant, state, std::move(next));
  const DefaultGroupScope default_group(generation.group_);
  try {
    equalise_states(*generation.group_, state, source, states_differ, generation.generation_);
    record::Recorder::process().set_step(state.state().step);  // that of metrics
    Context context(generation);
    train(context);
    generation.end();
    return true;
  } catch (const Regroup&) {
    return false;
  } catch (const std::exception& error) {
    // LibTorch may have wrapped what the group threw; the group's own error is more precise.
    const Status health = generation.group_->health();
    if (health.ok() || !is_loss(health.code())) throw;
    log_warn("generation {} is over: {}", generation.generation_, health.message());
    return false;
  }
}

}  // namespace

std::optional<std::vector<std::size_t>> Context::Generation::next_batch(std::size_t batch_size) {
  const auto& position = state_.state().sampler;
  if (!position) {
    throw Error({StatusCode::invalid_argument,
                 "Context::next_batch: the State has no sampler; set state.sampler = DistributedSamplerState{.seed = "
                 "..., .dataset_size = ...} before elastic::run"});
  }
  if (!sampler_) {
    sampler_.emplace(static_cast<std::size_t>(position->dataset_size),
                     DistributedSamplerOptions{.num_replicas = group_->size(), .rank = group_->rank(), .pad = false});
    sampler_->load_state(*position);
    sampler_->reset();
  }
  const std::int64_t left = position->dataset_size - state_.position();
  if (left <= 0) return std::nullopt;
  const std::int64_t world = group_->size();
  std::int64_t wanted = static_cast<std::int64_t>(batch_size) * world;
  // A remainder that is too small for all ranks is added to this step: few models accept an empty batch.
  if (left - wanted < world) wanted = left;
  state_.take_samples(wanted);
  const std::int64_t mine = std::max<std::int64_t>(0, (wanted - group_->rank() + world - 1) / world);
  if (mine == 0) return std::vector<std::size_t>{};
  return sampler_->next(static_cast<std::size_t>(mine)).value_or(std::vector<std::size_t>{});
}

void Context::Generation::commit() {
  const Phase phase(PhaseKind::commit);
  failpoint("commit.begin");
  state_.commit_step();
  at::Tensor wish = at::zeros({1}, at::kByte);
  if (group_->rank() == 0 && participant_.newcomers_wait()) wish.fill_(1);
  group_->all_reduce(wish, {.op = ReduceOp::max}).wait();
  if (wish.item<std::uint8_t>() != 0) throw Regroup();
}

void Context::Generation::end() {
  group_->barrier({}).wait();
  participant_.finish();
}

int Context::rank() const { return generation_.group_->rank(); }
int Context::world_size() const { return generation_.group_->size(); }
std::int64_t Context::generation() const { return generation_.generation_; }
const std::shared_ptr<ProcessGroup>& Context::group() const { return generation_.group_; }
std::int64_t Context::step() const { return generation_.state_.state().step; }
std::int64_t Context::epoch() const { return generation_.state_.state().epoch; }
std::optional<std::vector<std::size_t>> Context::next_batch(std::size_t batch_size) {
  return generation_.next_batch(batch_size);
}
void Context::step(torch::optim::Optimizer& optimizer) {
  step([&] { optimizer.step(); });
}
void Context::step(const std::function<void()>& update) {
  generation_.state_.make_step([&] {
    failpoint("step.making");
    const Phase phase(PhaseKind::optimizer);
    update();
  });
  failpoint("step.made");
}
void Context::step(torch::optim::Optimizer& optimizer, LearningRate& rate) {
  step([&] {
    rate.apply(step());
    optimizer.step();
  });
}
void Context::commit() { generation_.commit(); }
void Context::next_epoch() {
  generation_.state_.commit_epoch();
  generation_.sampler_.reset();
}

Outcome run(State& state, const std::function<void(Context&)>& train, const Options& options) {
  if (is_initialized()) {
    throw Error({StatusCode::already_exists,
                 "elastic::run makes the default process group itself; do not call init_process_group() before"});
  }
  const detail::ElasticRunning running;
  Participant participant(participant_options(options));
  detail::ElasticState elastic_state(state, participant.is_newcomer() ? -1 : 0);
  while (true) {
    std::optional<Participant::RankStart> generation;
    try {
      generation = participant.next_generation(elastic_state.progress());
    } catch (const Error& error) {
      if (error.code() == StatusCode::unavailable && options.on_give_up) options.on_give_up(error.status().message());
      throw;
    }
    if (!generation) return Outcome::finished_elsewhere;
    if (!generation->has_state) elastic_state.forget();
    if (run_generation(participant, elastic_state, *std::move(generation), train)) return Outcome::trained;
    elastic_state.settle();
  }
}

std::uint64_t hash_of_parameters(const ModelView& model) {
  std::uint64_t hash = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    const at::Tensor flat = parameter.detach().contiguous();
    hash = XXH3_64bits_withSeed(flat.data_ptr(), flat.nbytes(), hash);
  }
  return hash;
}

}  // namespace lockstep::elastic
