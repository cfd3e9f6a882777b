#include "launch/meeting/meeting_records.h"

#include <fmt/format.h>

#include <charconv>
#include <span>

#include "base/codec.h"
#include "base/net/socket.h"

namespace lockstep::launch {
namespace {

constexpr std::uint32_t kMagic = 0x4E4C534C;  // "LSLN"
constexpr std::uint16_t kVersion = 4;
constexpr std::size_t kMaxNameBytes = 255;
constexpr std::size_t kMaxTextBytes = std::size_t{16} << 10;
constexpr std::uint32_t kMaxCount = 65536;

enum class Kind : std::uint16_t { node = 1, job = 2 };

// One function per type reads and writes its fields, so that both sides cannot differ.
class Writer {
 public:
  explicit Writer(Kind kind) {
    writer_.put(kMagic);
    writer_.put(kVersion);
    writer_.put(static_cast<std::uint16_t>(kind));
  }
  template <std::integral T>
  void number(const T& value) {
    writer_.put(value);
  }
  void flag(const bool& value) { writer_.put(static_cast<std::uint8_t>(value ? 1 : 0)); }
  // Text longer than a reader accepts is truncated, so that a record can always be read.
  void text(const std::string& value, std::size_t limit) {
    writer_.put_string(std::string_view(value).substr(0, limit));
  }
  template <typename Items, typename Each>
  void items(const Items& values, Each each) {
    writer_.put(static_cast<std::uint32_t>(values.size()));
    for (const auto& value : values) each(value);
  }
  std::string take() const { return {reinterpret_cast<const char*>(writer_.bytes().data()), writer_.bytes().size()}; }

 private:
  ByteWriter writer_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : reader_(std::as_bytes(std::span(bytes.data(), bytes.size()))) {}

  Status header(Kind kind) {
    const auto magic = reader_.get<std::uint32_t>();
    const auto version = reader_.get<std::uint16_t>();
    const auto found = reader_.get<std::uint16_t>();
    if (!reader_.ok() || magic != kMagic) return Status(StatusCode::protocol_error, "not a record of a launcher");
    if (version != kVersion) {
      return Status(StatusCode::protocol_error,
                    fmt::format("a launcher of protocol version {}, but this one has version {}; run the same "
                                "version of Lockstep on all nodes",
                                version, kVersion));
    }
    if (found != static_cast<std::uint16_t>(kind)) return malformed();
    return {};
  }
  static Status malformed() { return Status(StatusCode::protocol_error, "a malformed record of a launcher"); }

  template <std::integral T>
  void number(T& value) {
    value = reader_.get<T>();
  }
  void flag(bool& value) { value = reader_.get<std::uint8_t>() != 0; }
  void text(std::string& value, std::size_t limit) { value = reader_.get_string(limit); }
  template <typename T, typename Each>
  void items(std::vector<T>& values, Each each) {
    std::uint32_t left = count();
    while (left-- > 0 && reader_.ok()) {
      values.emplace_back();
      each(values.back());
    }
  }
  template <typename T, typename Each>
  void items(std::map<std::string, T>& values, Each each) {
    std::uint32_t left = count();
    while (left-- > 0 && reader_.ok()) {
      std::pair<std::string, T> value;
      each(value);
      values.insert(std::move(value));
    }
  }
  bool complete() const { return reader_.complete() && !too_many_; }
  bool ok() const { return reader_.ok(); }

 private:
  std::uint32_t count() {
    const auto count = reader_.get<std::uint32_t>();
    too_many_ = too_many_ || count > kMaxCount;
    return too_many_ ? 0 : count;
  }
  ByteReader reader_;
  bool too_many_ = false;
};

template <typename Io, typename Record>
void serialize_node(Io& io, Record& record) {
  io.text(record.id, kMaxNameBytes);
  io.text(record.host, kMaxNameBytes);
  io.number(record.pid);
  io.number(record.nproc);
  io.text(record.address, kMaxNameBytes);
  int node_rank = record.node_rank.value_or(-1);
  io.number(node_rank);
  io.number(record.rank_port);
  io.number(record.started);
  io.text(record.attester, kMaxNameBytes);
  if constexpr (!std::is_const_v<Record>) record.node_rank = node_rank < 0 ? std::nullopt : std::optional(node_rank);
}

template <typename Io, typename Nodes>
void serialize_nodes(Io& io, Nodes& nodes) {
  io.items(nodes, [&](auto& node) { serialize_node(io, node); });
}

template <typename Io, typename Names>
void serialize_names(Io& io, Names& names) {
  io.items(names, [&](auto& name) { io.text(name, kMaxNameBytes); });
}

template <typename Io, typename Job>
void serialize_job(Io& io, Job& job) {
  io.text(job.run_id, kMaxNameBytes);
  io.number(job.min_nodes);
  io.number(job.max_nodes);
  io.flag(job.elastic);
  io.number(job.max_restarts);
  io.flag(job.serve_store);
}

template <typename Io, typename Record>
void serialize_round(Io& io, Record& round) {
  io.number(round.number);
  io.text(round.id, kMaxNameBytes);
  io.text(round.master, kMaxNameBytes);
  serialize_nodes(io, round.nodes);
  io.number(round.base);
  io.text(round.base_id, kMaxNameBytes);
  io.text(round.witness, kMaxNameBytes);
}

// Without `site`, which nodes do not have.
template <typename Io, typename Record>
void serialize_member(Io& io, Record& member) {
  io.text(member.id, kMaxNameBytes);
  io.text(member.host, kMaxNameBytes);
  io.number(member.pid);
  io.number(member.started);
  io.text(member.store_address, kMaxNameBytes);
  io.text(member.attester, kMaxNameBytes);
}

template <typename Io, typename Others>
void serialize_others(Io& io, Others& others) {
  io.items(others, [&](auto& other) {
    auto& generation = other.generation;
    io.number(generation.number);
    io.text(generation.id, kMaxNameBytes);
    io.items(generation.members, [&](auto& member) { serialize_member(io, member); });
    io.text(generation.witness, kMaxNameBytes);
    io.flag(other.may_hide_others);
  });
}

// Keys of a map are constant when it is written.
template <typename Io, typename Ends>
void serialize_ends(Io& io, Ends& ends) {
  io.items(ends, [&](auto& end) {
    io.text(end.first, kMaxNameBytes);
    io.number(end.second.number);
    io.text(end.second.id, kMaxNameBytes);
  });
}

template <typename Io, typename Failures>
void serialize_failures(Io& io, Failures& failures) {
  io.items(failures, [&](auto& item) {
    io.number(item.round);
    io.text(item.node, kMaxNameBytes);
    auto& failure = item.failure;
    io.number(failure.rank);
    io.number(failure.local_rank);
    io.number(failure.node_rank);
    io.text(failure.host, kMaxNameBytes);
    io.number(failure.pid);
    io.number(failure.exit_code);
    io.number(failure.signal);
    io.number(failure.time_ns);
    io.text(failure.reason, kMaxTextBytes);
    io.text(failure.log, kMaxTextBytes);
  });
}

template <typename Io, typename State>
void serialize_node_state(Io& io, State& state) {
  serialize_node(io, state.record);
  serialize_job(io, state.job);
  io.number(state.connection);
  io.flag(state.wants_round);
  io.number(state.round);
  io.flag(state.finished);
  io.flag(state.left);
  serialize_failures(io, state.failures);
  io.text(state.over, kMaxTextBytes);
  io.number(state.restart_asks);
  io.number(state.term);
  io.number(state.restarts);
  io.number(state.counted_round);
  io.number(state.counted_asks);
  io.number(state.roster_number);
  io.text(state.accepted, kMaxNameBytes);
  serialize_round(io, state.known_round);
  serialize_round(io, state.established);
}

template <typename Io, typename State>
void serialize_job_state(Io& io, State& state) {
  serialize_job(io, state.job);
  io.number(state.term);
  io.flag(state.official);
  serialize_node(io, state.coordinator);
  serialize_round(io, state.round);
  serialize_round(io, state.established);
  serialize_others(io, state.others);
  io.number(state.restarts);
  io.number(state.counted_round);
  io.items(state.counted, [&](auto& pair) {
    // Keys of a map are constant when it is written.
    io.text(pair.first, kMaxNameBytes);
    io.number(pair.second);
  });
  serialize_names(io, state.lost);
  serialize_names(io, state.ended);
  serialize_ends(io, state.ended_with);
  serialize_names(io, state.finished);
  serialize_nodes(io, state.waiting);
  serialize_failures(io, state.failures);
  io.text(state.over, kMaxTextBytes);
  io.text(state.progress, kMaxTextBytes);
  io.number(state.roster_number);
}

// The master is parsed again later.
bool is_valid(const RoundRecord& round) {
  if (round.number < 0) return true;
  const auto place = parse_host_port(round.master);
  return place.ok() && place->port != 0;
}

}  // namespace

std::string format(const NodeState& state) {
  Writer writer(Kind::node);
  serialize_node_state(writer, state);
  return writer.take();
}

std::string format(const JobState& state) {
  Writer writer(Kind::job);
  serialize_job_state(writer, state);
  return writer.take();
}

Result<NodeState> parse_node_state(std::string_view bytes) {
  Reader reader(bytes);
  LOCKSTEP_RETURN_IF_ERROR(reader.header(Kind::node));
  NodeState state;
  serialize_node_state(reader, state);
  if (!reader.complete() || state.record.id.empty() || state.record.nproc < 1 || !is_valid(state.known_round) ||
      !is_valid(state.established)) {
    return Reader::malformed();
  }
  return state;
}

Result<JobState> parse_job_state(std::string_view bytes) {
  Reader reader(bytes);
  LOCKSTEP_RETURN_IF_ERROR(reader.header(Kind::job));
  JobState state;
  serialize_job_state(reader, state);
  if (!reader.complete() || !is_valid(state.round) || !is_valid(state.established)) return Reader::malformed();
  return state;
}

std::int64_t roster_number(std::string_view roster) {
  const std::string_view line = roster.substr(0, roster.find('\n'));
  std::int64_t number = -1;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  return error == std::errc() && end == line.data() + line.size() && number >= 0 ? number : -1;
}

}  // namespace lockstep::launch
