#include "bench/driver/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace lockstep::bench {
namespace {

Status invalid(std::string message) { return {StatusCode::invalid_argument, std::move(message)}; }

// Removes the number at the start of `text` and returns it.
std::optional<std::size_t> take_number(std::string_view& text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::optional<int> whole_number(std::string_view text) {
  const auto value = take_number(text);
  if (!value || !text.empty() || *value > 1'000'000) return std::nullopt;
  return static_cast<int>(*value);
}

Status check_ranks_and_rounds(int nproc, int rounds) {
  if (nproc < 1 || nproc > kMaxRanks)
    return invalid(fmt::format("--nproc is {}: it must be 1 to {}", nproc, kMaxRanks));
  if (rounds < 1 || rounds > 10'000) return invalid(fmt::format("--rounds is {}: it must be 1 to 10000", rounds));
  return {};
}

Status check_rate(const std::string& rate, const HostLayout& hosts) {
  if (rate.empty() || hosts.enabled()) return {};
  return invalid("--rate shapes the links between hosts: it needs --hosts");
}

template <typename Names>
bool is_one_of(const Names& names, const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

Result<std::size_t> parse_bytes(const std::string& text) {
  const auto error = [&] { return invalid(fmt::format("'{}' is not a size: write bytes as 8, 64K, 25M or 1G", text)); };
  std::string_view rest = text;
  const auto number = take_number(rest);
  if (!number || *number == 0) return error();
  static constexpr std::pair<std::string_view, int> kUnits[] = {{"", 0}, {"K", 10}, {"M", 20}, {"G", 30}};
  for (const auto& [unit, shift] : kUnits) {
    if (rest != unit) continue;
    if (*number > (std::size_t{1} << 40) >> shift) return error();
    return *number << shift;
  }
  return error();
}

Result<SizeRange> parse_size_range(const std::string& text) {
  const auto colon = text.find(':');
  const Result<std::size_t> min = parse_bytes(text.substr(0, colon));
  if (!min.ok()) return min.status();
  if (colon == std::string::npos) return SizeRange{*min, *min};
  const Result<std::size_t> max = parse_bytes(text.substr(colon + 1));
  if (!max.ok()) return max.status();
  if (*max < *min) return invalid(fmt::format("'{}' is not a range of sizes: write the smaller one first", text));
  return SizeRange{*min, *max};
}

Result<HostLayout> parse_hosts(const std::string& text) {
  const auto colon = text.find(':');
  const auto hosts = whole_number(std::string_view(text).substr(0, colon));
  const auto ranks = colon == std::string::npos ? 1 : whole_number(std::string_view(text).substr(colon + 1));
  if (hosts && ranks && *hosts >= 2 && *hosts <= 32 && *ranks >= 1 && *hosts * *ranks <= kMaxRanks)
    return HostLayout{*hosts, *ranks};
  return invalid(
      fmt::format("'{}' is not a layout of hosts: write HOSTS:RANKS as 2:1, with 2 to 32 hosts and at "
                  "most {} ranks in total",
                  text, kMaxRanks));
}

Result<DType> parse_dtype(const std::string& text) {
  for (const DType dtype :
       {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u8, DType::i32, DType::i64}) {
    if (to_string(dtype) == text) return dtype;
  }
  return invalid(fmt::format("'{}' is not an element type: choose f32, f64, f16, bf16, i8, u8, i32 or i64", text));
}

Result<std::vector<Memory>> parse_memory(const std::string& text) {
  if (text == "registered") return std::vector{Memory::registered};
  if (text == "private") return std::vector{Memory::private_memory};
  if (text == "both") return std::vector{Memory::registered, Memory::private_memory};
  return invalid(fmt::format("'{}' is not a kind of memory: choose registered, private or both", text));
}

Result<std::string> parse_rate(const std::string& text) {
  std::string_view rest = text;
  const auto number = take_number(rest);
  if (number && *number > 0 && (rest == "kbit" || rest == "mbit" || rest == "gbit")) return text;
  return invalid(fmt::format("'{}' is not a rate: write it as 1gbit, 100mbit or 500kbit", text));
}

Status validate(const BenchOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(check_ranks_and_rounds(options.nproc, options.rounds));
  if (options.iterations < 0 || options.iterations > 1'000'000)
    return invalid(fmt::format("--iterations is {}: it must be 1 to 1000000", options.iterations));
  if (options.step < 2)
    return invalid(fmt::format("--step is {}: the factor between sizes must be at least 2", options.step));
  for (const std::string& peer : options.peers) {
    if (!is_one_of(kPeers, peer))
      return invalid(fmt::format("'{}' is not a peer: choose {}", peer, fmt::join(kPeers, ", ")));
  }
  return check_rate(options.rate, options.hosts);
}

Status validate_ddp(const DdpBenchOptions& options) {
  static constexpr std::string_view kModels[] = {"mlp", "cnn", "gpt"};
  if (!is_one_of(kModels, options.model))
    return invalid(fmt::format("--model {}: choose {}", options.model, fmt::join(kModels, ", ")));
  if (!is_one_of(kDdpOptimizers, options.optimizer))
    return invalid(fmt::format("--optimizer {}: choose {}", options.optimizer, fmt::join(kDdpOptimizers, ", ")));
  LOCKSTEP_RETURN_IF_ERROR(check_ranks_and_rounds(options.nproc, options.rounds));
  if (options.batch < 1 || options.steps < 1) return invalid("--batch and --steps must be at least 1");
  for (const std::string& backend : options.backends) {
    if (!is_one_of(kDdpBackends, backend))
      return invalid(fmt::format("--backend {}: choose {}", backend, fmt::join(kDdpBackends, ", ")));
  }
  for (const std::string& peer : options.peers) {
    if (peer != "torch") return invalid(fmt::format("--peer {}: the only peer is torch", peer));
  }
  return check_rate(options.rate, options.hosts);
}

std::string describe_layout(int ranks, const HostLayout& hosts, const std::string& rate) {
  if (!hosts.enabled()) return fmt::format("{} ranks", ranks);
  return fmt::format("{} hosts x {} ranks, {}", hosts.hosts, hosts.ranks_each,
                     rate.empty() ? "links not shaped" : "links of " + rate);
}

std::vector<std::size_t> sizes_of(const BenchOptions& options) {
  if (options.collective == Collective::barrier) return {0};
  std::vector<std::size_t> sizes;
  for (std::size_t size = options.bytes.min; size < options.bytes.max; size *= options.step) sizes.push_back(size);
  sizes.push_back(options.bytes.max);
  return sizes;
}

int iterations_at(const BenchOptions& options, std::size_t bytes) {
  if (options.iterations > 0) return options.iterations;
  const std::size_t slow = options.hosts.enabled() ? 4 : 1;  // a network is about four times as slow as memory
  if (bytes * slow <= std::size_t{64} << 10) return 200;
  if (bytes * slow <= std::size_t{1} << 20) return 50;
  if (bytes * slow <= std::size_t{16} << 20) return 20;
  return 5;
}

}  // namespace lockstep::bench
