#include "collectives/selector.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "collectives/hierarchical.h"
#include "collectives/host/inline.h"
#include "collectives/stream/algorithms.h"

namespace lockstep {
namespace {

constexpr std::array kKinds = {
    OperationKind::barrier,    OperationKind::all_reduce,   OperationKind::reduce,         OperationKind::broadcast,
    OperationKind::all_gather, OperationKind::all_gather_v, OperationKind::reduce_scatter, OperationKind::gather,
    OperationKind::scatter,    OperationKind::all_to_all,
};
constexpr std::array kAlgorithms = {
    Algorithm::automatic, Algorithm::host_inline, Algorithm::host_shared,  Algorithm::host_staged,
    Algorithm::ring,      Algorithm::direct,      Algorithm::pair,         Algorithm::small,
    Algorithm::tree,      Algorithm::chain,       Algorithm::hierarchical,
};

// Sizes above which the next algorithm is faster; measured, see docs/benchmarks.md.
constexpr std::size_t kInlineTotal = std::size_t{32} << 10;  // bytes that every rank reads inline
constexpr std::size_t kStreamSmall = std::size_t{8} << 10;   // bytes that every rank sends to every rank
constexpr std::size_t kStreamTree = std::size_t{64} << 10;

template <typename Names, typename Value = typename Names::value_type>
std::optional<Value> by_name(const Names& values, std::string_view name) {
  const auto found = std::find_if(values.begin(), values.end(), [&](auto value) { return to_string(value) == name; });
  if (found == values.end()) return std::nullopt;
  return *found;
}

std::string human_bytes(std::size_t bytes) {
  if (bytes >= (std::size_t{1} << 20)) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= (std::size_t{1} << 10)) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

}  // namespace

std::string_view to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::automatic: return "auto";
    case Algorithm::host_inline: return "inline";
    case Algorithm::host_shared: return "shared";
    case Algorithm::host_staged: return "staged";
    case Algorithm::ring: return "ring";
    case Algorithm::direct: return "direct";
    case Algorithm::pair: return "pair";
    case Algorithm::small: return "small";
    case Algorithm::tree: return "tree";
    case Algorithm::chain: return "chain";
    case Algorithm::hierarchical: return "hierarchical";
  }
  return "unknown";
}

Selector::Selector(const Topology& topology)
    : size_(topology.size()), hosts_(static_cast<int>(topology.hosts.size())), several_per_host_(size_ > hosts_) {}

Result<Selector> Selector::create(const Topology& topology, const std::string& overrides) {
  Selector selector(topology);
  std::string_view rest = overrides;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const auto equals = item.find('=');
    const std::string_view name = equals == std::string_view::npos ? item : item.substr(equals + 1);
    const auto algorithm = by_name(kAlgorithms, name);
    if (!algorithm) {
      std::vector<std::string_view> known;
      for (const auto known_one : kAlgorithms) known.push_back(to_string(known_one));
      return Status(
          StatusCode::invalid_argument,
          fmt::format("LOCKSTEP_ALGORITHM: '{}' is not an algorithm; use one of {}", name, fmt::join(known, ", ")));
    }
    bool used = *algorithm == Algorithm::automatic;
    for (const auto kind : kKinds) {
      if (equals != std::string_view::npos && to_string(kind) != item.substr(0, equals)) continue;
      const auto able = selector.candidates(kind);
      if (std::find(able.begin(), able.end(), *algorithm) == able.end()) continue;
      selector.overrides_[kind] = *algorithm;
      used = true;
    }
    if (!used) {
      return Status(StatusCode::invalid_argument,
                    fmt::format("LOCKSTEP_ALGORITHM: '{}' names no operation that can use it with {} ranks on {} "
                                "hosts; the algorithms in use:\n{}",
                                item, selector.size_, selector.hosts_, selector.table()));
    }
  }
  return selector;
}

std::vector<Algorithm> Selector::candidates(OperationKind kind) const {
  if (hosts_ == 1) {
    if (kind == OperationKind::barrier) return {Algorithm::host_inline};
    return {Algorithm::host_inline, Algorithm::host_shared, Algorithm::host_staged};
  }
  std::vector<Algorithm> able;
  switch (kind) {
    case OperationKind::barrier:
      able = {Algorithm::small};
      if (several_per_host_) able.push_back(Algorithm::hierarchical);
      break;
    case OperationKind::all_reduce:
      able = {Algorithm::small, Algorithm::direct, Algorithm::ring};
      if (size_ == 2) able.push_back(Algorithm::pair);
      if (several_per_host_) able.push_back(Algorithm::hierarchical);
      break;
    case OperationKind::reduce: able = {Algorithm::small, Algorithm::direct}; break;
    case OperationKind::broadcast: able = {Algorithm::tree, Algorithm::chain}; break;
    case OperationKind::all_gather: able = {Algorithm::small, Algorithm::direct, Algorithm::ring}; break;
    case OperationKind::all_gather_v: able = {Algorithm::direct, Algorithm::ring}; break;
    case OperationKind::reduce_scatter:
    case OperationKind::gather:
    case OperationKind::scatter:
    case OperationKind::all_to_all: able = {Algorithm::direct}; break;
    case OperationKind::send:
    case OperationKind::recv: break;  // messages need no algorithm
  }
  return able;
}

Algorithm Selector::by_size(OperationKind kind, DType dtype, std::size_t bytes) const {
  if (hosts_ == 1) {
    const bool fits = bytes <= kInlineCapacity && bytes * static_cast<std::size_t>(size_) <= kInlineTotal;
    return fits || kind == OperationKind::barrier ? Algorithm::host_inline : Algorithm::host_shared;
  }
  switch (kind) {
    case OperationKind::barrier: return several_per_host_ ? Algorithm::hierarchical : Algorithm::small;
    case OperationKind::all_reduce:
      if (several_per_host_ && hierarchical_can_carry(dtype)) return Algorithm::hierarchical;
      if (bytes <= kStreamSmall) return Algorithm::small;
      if (size_ == 2) return Algorithm::pair;
      return !several_per_host_ && ring_can_carry(dtype) ? Algorithm::ring : Algorithm::direct;
    case OperationKind::reduce: return bytes <= kStreamSmall ? Algorithm::small : Algorithm::direct;
    case OperationKind::broadcast: return bytes <= kStreamTree ? Algorithm::tree : Algorithm::chain;
    case OperationKind::all_gather: return bytes <= kStreamSmall ? Algorithm::small : Algorithm::ring;
    case OperationKind::all_gather_v: return bytes <= kStreamSmall ? Algorithm::direct : Algorithm::ring;
    case OperationKind::reduce_scatter:
    case OperationKind::gather:
    case OperationKind::scatter:
    case OperationKind::all_to_all: return Algorithm::direct;
    case OperationKind::send:
    case OperationKind::recv: break;  // messages need no algorithm
  }
  return Algorithm::automatic;
}

Algorithm Selector::choose(const CollectiveCall& call) const {
  const auto kind = call.descriptor.kind;
  const std::size_t bytes = inline_payload_bytes(call, size_);
  const auto forced = overrides_.find(kind);
  if (forced != overrides_.end()) {
    const Algorithm wanted = forced->second;
    const DType dtype = call.descriptor.dtype;
    const bool able = !(wanted == Algorithm::host_inline && bytes > kInlineCapacity) &&
                      !(wanted == Algorithm::ring && kind == OperationKind::all_reduce && !ring_can_carry(dtype)) &&
                      !(wanted == Algorithm::hierarchical && !hierarchical_can_carry(dtype));
    if (able) return wanted;
  }
  return by_size(kind, call.descriptor.dtype, bytes);
}

std::string Selector::table() const {
  constexpr std::size_t kLargest = std::size_t{1} << 30;
  std::string text = fmt::format("{:<16}{:<8}{:<24}{}\n", "operation", "dtype", "bytes", "algorithm");
  for (const auto kind : kKinds) {
    for (const auto dtype : {DType::f32, DType::f16}) {
      const bool differs = by_size(kind, DType::f32, kLargest) != by_size(kind, DType::f16, kLargest);
      if (dtype == DType::f16 && !differs) continue;
      const char* types = !differs ? "all" : dtype == DType::f32 ? "32/64" : "8/16";
      const auto forced = overrides_.find(kind);
      if (forced != overrides_.end()) {
        text +=
            fmt::format("{:<16}{:<8}{:<24}{} (override)\n", to_string(kind), types, "any", to_string(forced->second));
        continue;
      }
      std::size_t from = 0;
      for (std::size_t bytes = 8; bytes <= kLargest; bytes *= 2) {
        const Algorithm here = by_size(kind, dtype, from == 0 ? 8 : from);
        if (bytes < kLargest && by_size(kind, dtype, bytes * 2) == here) continue;
        const std::string range = bytes == kLargest ? fmt::format("above {}", human_bytes(from / 2))
                                                    : fmt::format("up to {}", human_bytes(bytes));
        text += fmt::format("{:<16}{:<8}{:<24}{}\n", to_string(kind), types,
                            from == 0 && bytes == kLargest ? "any" : range, to_string(here));
        from = bytes * 2;
      }
    }
  }
  return text;
}

}  // namespace lockstep
