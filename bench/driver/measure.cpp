#include "bench/driver/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "bench/driver/engines.h"
#include "bench/driver/machine.h"
#include "bench/worker/rotation.h"

namespace lockstep::bench {
namespace {

// An engine with one kind of memory: a row of the table.
struct Contestant {
  EngineProcesses* processes = nullptr;
  std::string name;
  std::string memory_name;
  Memory memory = Memory::private_memory;
  bool refused = false;
};

void remark(const std::string& text) { fmt::print(stderr, "# {}\n", text); }

// The bytes to measure the link's goodput with: enough that the shaper's burst does not matter.
std::uint64_t probe_bytes(std::size_t bytes) {
  return std::clamp<std::uint64_t>(2 * bytes, std::uint64_t{1} << 20, std::uint64_t{64} << 20);
}

class Benchmark {
 public:
  explicit Benchmark(const BenchOptions& options)
      : options_(options),
        ranks_(options.hosts.enabled() ? options.hosts.hosts * options.hosts.ranks_each : options.nproc) {
    if (options.hosts.enabled()) network_ = std::make_unique<VirtualNetwork>(options.hosts.hosts, options.rate);
    const Shape largest = shape_of(options.collective, options.dtype, ranks_, options.bytes.max);
    session_ =
        std::make_unique<Session>(Session{options_, folder_, network_.get(), worker_folder(), ranks_, cores_for(ranks_),
                                          arena_bytes(largest, options.dtype, cache_bytes()), random_secret()});
  }

  bool run() {
    start_engines();
    print_heading();
    for (const std::size_t bytes : sizes_of(options_)) measure_size(bytes);
    if (!options_.json_file.empty()) write_json_file(options_.json_file, to_json(rows_));
    const auto wrong = [](const Row& row) { return row.engine == "lockstep" && row.wrong > 0; };
    const bool all_right = std::none_of(rows_.begin(), rows_.end(), wrong);
    if (!all_right) remark("Lockstep produced wrong results: see the column #wrong");
    return all_right;
  }

 private:
  void start_engines() {
    std::vector<std::string> names = {"lockstep"};
    for (const std::string& peer : options_.peers) {
      if (std::find(names.begin(), names.end(), peer) == names.end()) names.push_back(peer);
    }
    names.push_back(limit_name());
    for (const std::string& name : names) {
      if (const std::string reason = why_missing(*session_, name); !reason.empty()) {
        remark(reason);
        continue;
      }
      if (start(name)) add_contestants(*engines_.back());
    }
  }

  // A peer that does not start is left out; Lockstep and the limit must start.
  bool start(const std::string& name) {
    try {
      engines_.push_back(std::make_unique<EngineProcesses>(*session_, name));
      return true;
    } catch (const BenchError& error) {
      if (InterruptGuard::signal() != 0 || name == "lockstep" || name == limit_name()) throw;
      remark(fmt::format("{} is left out because it does not start: {}", name, error.what()));
      return false;
    }
  }

  std::string limit_name() const { return network_ ? "link" : "limit"; }

  void add_contestants(EngineProcesses& engine) {
    const std::string& name = engine.name();
    if (name == limit_name()) {
      contestants_.push_back({&engine, "limit", network_ ? "link" : "shared", Memory::private_memory});
    } else if (name == "lockstep" && options_.collective == Collective::barrier) {
      contestants_.push_back({&engine, name, "none", Memory::private_memory});
    } else if (name == "lockstep") {
      for (const Memory memory : options_.memories)
        contestants_.push_back({&engine, name, std::string(to_string(memory)), memory});
    } else {
      peers_.push_back(name);
      contestants_.push_back({&engine, name, std::string(to_string(Memory::private_memory)), Memory::private_memory});
    }
  }

  void print_heading() const {
    fmt::print("# {} {}: {}, {}, {} rounds, {}\n", to_string(options_.collective), to_string(options_.dtype),
               describe_layout(ranks_, options_.hosts, options_.rate),
               session_->cores.empty() ? "ranks not pinned" : "one core per rank", options_.rounds,
               options_.warm ? "warm (one buffer, reused)" : "cold (buffers rotate through more than the cache holds)");
    fmt::print("# {}\n", describe_machine());
    fmt::print("{}", table_header(peers_, network_ != nullptr));
    std::fflush(stdout);
  }

  void measure_size(std::size_t bytes) {
    std::vector<Samples> samples(contestants_.size());
    std::vector<std::size_t> order(contestants_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (int round = 0; round < options_.rounds; ++round) {
      std::shuffle(order.begin(), order.end(), random_);
      for (const std::size_t i : order) {
        check_interrupted();
        if (contestants_[i].refused) continue;
        if (contestants_[i].processes->name() == "link")
          measure_link(*contestants_[i].processes, bytes, samples[i]);
        else
          measure_round(contestants_[i], bytes, samples[i]);
      }
    }
    report_size(bytes, samples);
  }

  void measure_round(Contestant& contestant, std::size_t bytes, Samples& samples) {
    const auto iterations = static_cast<std::uint32_t>(iterations_at(options_, bytes));
    const Command command{.collective = options_.collective,
                          .dtype = options_.dtype,
                          .memory = contestant.memory,
                          .cold = !options_.warm,
                          .bytes = bytes,
                          .iterations = iterations,
                          .warmup = std::max(1u, iterations / 10)};
    const std::vector<std::uint64_t> sent_before = network_ ? network_->bytes_sent() : std::vector<std::uint64_t>();
    const std::vector<Reply> replies = contestant.processes->run(command);
    std::vector<std::vector<double>> seconds;
    std::vector<std::vector<std::uint64_t>> digests;
    for (const Reply& reply : replies) {
      if (!reply.error.empty()) return refuse(contestant, reply.error);
      seconds.push_back(reply.seconds);
      digests.push_back(reply.digests);
      samples.wrong += reply.wrong;
      samples.cpu_seconds += reply.cpu_seconds;
    }
    const std::vector<double> times = slowest_rank(seconds);
    samples.seconds.insert(samples.seconds.end(), times.begin(), times.end());
    samples.round_medians.push_back(median(times));
    samples.wrong += count_differences(digests);
    samples.operations += command.iterations + command.warmup;
    if (network_) samples.wire_bytes += most_sent(sent_before, network_->bytes_sent());
  }

  void measure_link(EngineProcesses& link, std::size_t bytes, Samples& samples) {
    const std::uint64_t probe = probe_bytes(bytes);
    const std::vector<Reply> replies = link.run({.bytes = probe});
    double latency = 0;
    double exchange = 0;
    for (const Reply& reply : replies) {
      latency = std::max(latency, reply.seconds.at(0));
      exchange = std::max(exchange, reply.seconds.at(1));
    }
    const double goodput = static_cast<double>(probe) / exchange;
    const double limit = link_limit(options_.collective, options_.hosts.hosts, bytes, latency, goodput);
    samples.seconds.push_back(limit);
    samples.round_medians.push_back(limit);
  }

  static double most_sent(const std::vector<std::uint64_t>& before, const std::vector<std::uint64_t>& after) {
    std::uint64_t most = 0;
    for (std::size_t host = 0; host < before.size(); ++host) most = std::max(most, after[host] - before[host]);
    return static_cast<double>(most);
  }

  void refuse(Contestant& contestant, const std::string& reason) {
    contestant.refused = true;
    remark(fmt::format("{} is left out: {}", contestant.name, reason));
  }

  void report_size(std::size_t bytes, const std::vector<Samples>& samples) {
    std::vector<double> limit;
    std::map<std::string, std::vector<double>> peers;
    for (std::size_t i = 0; i < contestants_.size(); ++i) {
      if (contestants_[i].name == "limit")
        limit = samples[i].round_medians;
      else if (contestants_[i].name != "lockstep")
        peers[contestants_[i].name] = samples[i].round_medians;
    }
    const Shape shape = shape_of(options_.collective, options_.dtype, ranks_, bytes);
    for (std::size_t i = 0; i < contestants_.size(); ++i) {
      if (samples[i].seconds.empty()) continue;
      rows_.push_back(make_row(options_, ranks_, shape, contestants_[i].name, contestants_[i].memory_name, samples[i],
                               limit, peers));
      fmt::print("{}", table_line(rows_.back(), peers_, network_ != nullptr));
    }
    std::fflush(stdout);
  }

  const BenchOptions& options_;
  int ranks_;
  TemporaryFolder folder_;
  std::unique_ptr<VirtualNetwork> network_;
  std::unique_ptr<Session> session_;
  std::vector<std::unique_ptr<EngineProcesses>> engines_;  // destroyed before the network and the folder
  std::vector<Contestant> contestants_;
  std::vector<std::string> peers_;
  std::vector<Row> rows_;
  std::mt19937 random_{std::random_device{}()};
};

}  // namespace

Row make_row(const BenchOptions& options, int ranks, const Shape& shape, const std::string& engine,
             const std::string& memory, const Samples& samples, const std::vector<double>& limit,
             const std::map<std::string, std::vector<double>>& peers) {
  Row row{.collective = options.collective,
          .dtype = options.dtype,
          .nproc = ranks,
          .bytes = shape.bytes,
          .count = shape.input_count,
          .engine = engine,
          .memory = memory,
          .warm = options.warm};
  const double p50 = percentile(samples.seconds, 0.50);
  row.p50_us = p50 * 1e6;
  row.p99_us = percentile(samples.seconds, 0.99) * 1e6;
  row.algbw = algorithm_bandwidth(shape.bytes, p50);
  row.busbw = row.algbw * bus_bandwidth_factor(options.collective, ranks);
  row.wrong = samples.wrong;
  const double gigabytes = static_cast<double>(shape.bytes) * 1e-9 * static_cast<double>(samples.seconds.size());
  if (gigabytes > 0 && samples.cpu_seconds > 0) row.cpu_seconds_per_gb = samples.cpu_seconds / gigabytes;
  row.limit = summarize_ratios(limit, samples.round_medians);
  if (engine == "lockstep") {
    for (const auto& [peer, medians] : peers) {
      if (const auto ratio = summarize_ratios(medians, samples.round_medians)) row.ratio[peer] = *ratio;
    }
  }
  const double needed = wire_bytes_needed(options.collective, options.hosts.hosts, shape.bytes);
  if (options.hosts.enabled() && samples.operations > 0) {
    row.wire_bytes = samples.wire_bytes / static_cast<double>(samples.operations);
    if (needed > 0) row.wire_fraction = *row.wire_bytes / needed;
  }
  return row;
}

int run_benchmark(const BenchOptions& options) {
  if (const Status status = validate(options); !status.ok()) {
    fmt::print(stderr, "lockstep bench: {}\n", status.message());
    return 2;
  }
  const InterruptGuard guard;
  try {
    return Benchmark(options).run() ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep bench: {}\n", error.what());
    return InterruptGuard::signal() != 0 ? 128 + InterruptGuard::signal() : 1;
  }
}

}  // namespace lockstep::bench
