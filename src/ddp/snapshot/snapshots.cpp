#include "lockstep/checkpoint/snapshot.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "base/log.h"
#include "checkpoint/snapshot_directory.h"
#include "checkpoint/snapshot_writer.h"
#include "ddp/snapshot/content.h"
#include "ddp/snapshot/exchange.h"
#include "ddp/snapshot/rng_state.h"
#include "lockstep/ddp/init.h"
#include "lockstep/ddp/zero_redundancy_optimizer.h"
#include "lockstep/record/phase.h"

namespace lockstep::checkpoint {

class Snapshots::Impl {
 public:
  Impl(std::string folder, const SnapshotOptions& options) : folder_(std::move(folder)), options_(options) {
    if (options.keep_last < 1) {
      throw Error({StatusCode::invalid_argument,
                   fmt::format("Snapshots: keep_last is {}; at least 1 has to be kept", options.keep_last)});
    }
    if (!options.alone && options.group != nullptr) options.group->require_member();
  }
  ~Impl() {
    if (const Status status = join_writer(); !status.ok()) log_error("{}", status.message());
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void save(const State& state);
  void wait() { agree(group(), join_writer()); }
  std::optional<Loaded> load(State& state, const std::string* path);

 private:
  // Looked up for each call: the default group may be created again. Null: alone.
  GroupPointer group() const {
    if (options_.alone) return nullptr;
    if (options_.group != nullptr) return options_.group;
    return is_initialized() ? group_or_default() : nullptr;
  }
  Status join_writer();
  Status write();
  NewestSnapshot read(const std::string* path) const;

  const std::string folder_;
  const SnapshotOptions options_;

  // Owned by the writer thread while it runs; joining it returns them.
  std::thread writer_;
  Content content_;
  Status written_;
};

Status Snapshots::Impl::join_writer() {
  if (writer_.joinable()) writer_.join();
  return std::exchange(written_, Status());
}

Status Snapshots::Impl::write() {
  Result<std::string> path = Status(StatusCode::internal, "nothing was written");
  const Status thrown = status_of([&] {
    path = write_snapshot(folder_, content_.manifest, content_.files(),
                          {.keep_last = options_.keep_last, .lock_timeout = options_.lock_timeout});
  });
  if (!thrown.ok()) return thrown;
  if (path.ok()) log_info("wrote the snapshot {}", *path);
  return path.status();
}

void Snapshots::Impl::save(const State& state) {
  const Phase phase(PhaseKind::snapshot);
  const GroupPointer group = this->group();
  const int world_size = group == nullptr ? 1 : group->size();
  const bool writes = group == nullptr || group->rank() == 0;
  auto* const sharded = state.optimizer ? dynamic_cast<detail::ShardedOptimizer*>(&state.optimizer->get()) : nullptr;
  if (sharded != nullptr && group != nullptr) sharded->consolidate_state_dict(0);
  std::vector<std::string> rng_states;
  if (state.rng) rng_states = gather_on_first(group, rng_to_bytes());
  Status status;
  if (writes) {
    status = join_writer();
    if (status.ok()) {
      status = status_of(
          [&] { content_ = collect(state, rng_states, world_size, options_.asynchronous, std::move(content_)); });
    }
    if (status.ok() && options_.asynchronous) {
      status = status_of([&] { writer_ = std::thread([this] { written_ = write(); }); });
    } else if (status.ok()) {
      status = write();
      content_ = {};
    }
  }
  try {
    agree(group, status);
  } catch (const Error& error) {
    // If the group has failed, its error would hide why the snapshot was not written.
    if (!status.ok() && error.code() != status.code()) log_error("{}", status.message());
    throw;
  }
}

NewestSnapshot Snapshots::Impl::read(const std::string* path) const {
  if (path == nullptr) return value_or_throw(read_newest_snapshot(folder_));
  NewestSnapshot one;
  one.snapshot = value_or_throw(read_snapshot(*path));
  return one;
}

std::optional<Loaded> Snapshots::Impl::load(State& state, const std::string* path) {
  const GroupPointer group = this->group();
  const int rank = group == nullptr ? 0 : group->rank();
  const int world_size = group == nullptr ? 1 : group->size();
  NewestSnapshot newest;
  Status status;
  if (rank == 0) {
    status = join_writer();
    if (status.ok()) status = status_of([&] { newest = read(path); });
  }
  agree(group, status);
  share_from_first(group, newest);
  if (!newest.snapshot) return std::nullopt;

  // Nothing is changed before all ranks have agreed that it fits.
  std::optional<Prepared> prepared;
  agree(group, status_of([&] { prepared.emplace(state, *newest.snapshot, rank); }));
  agree(group, status_of([&] { prepared->load_rng(); }));
  prepared->load_rest(state);

  const Manifest& manifest = newest.snapshot->manifest;
  if (rank == 0 && manifest.world_size != world_size) {
    log_warn(
        "{} was written by {} ranks and is loaded by {}: parameters are the same, but random numbers, and so the "
        "course of training, will not be",
        newest.snapshot->path, manifest.world_size, world_size);
  }
  return Loaded{newest.snapshot->path, manifest.created, static_cast<int>(manifest.world_size),
                std::move(newest.skipped_snapshots)};
}

Snapshots::Snapshots(std::string folder, const SnapshotOptions& options)
    : impl_(std::make_unique<Impl>(std::move(folder), options)) {}
Snapshots::~Snapshots() = default;

void Snapshots::save(const State& state) { impl_->save(state); }
void Snapshots::wait() { impl_->wait(); }
std::optional<Loaded> Snapshots::load(State& state) { return impl_->load(state, nullptr); }
Loaded Snapshots::load_from(const std::string& path, State& state) { return impl_->load(state, &path).value(); }

}  // namespace lockstep::checkpoint
