// Which algorithm carries out an operation, by kind, size, type and topology.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "collectives/context.h"

namespace lockstep {

enum class Algorithm : std::uint8_t {
  automatic,
  host_inline,  // payload inside the announcement
  host_shared,  // in registered memory in place, staged otherwise
  host_staged,  // always staged
  ring,
  direct,
  pair,
  small,
  tree,
  chain,
  hierarchical,
};
std::string_view to_string(Algorithm algorithm);

class Selector {
 public:
  // `overrides`: "" or "ring" (for every kind that has it) or "all_reduce=ring,broadcast=chain".
  // Unknown names, or an algorithm that cannot run on this topology, are errors that list those that can.
  static Result<Selector> create(const Topology& topology, const std::string& overrides);

  Algorithm choose(const CollectiveCall& call) const;
  // Human-readable: one line per kind and size range.
  std::string table() const;

 private:
  explicit Selector(const Topology& topology);
  std::vector<Algorithm> candidates(OperationKind kind) const;
  Algorithm by_size(OperationKind kind, DType dtype, std::size_t bytes) const;

  int size_ = 1;
  int hosts_ = 1;
  bool several_per_host_ = false;
  std::map<OperationKind, Algorithm> overrides_;
};

}  // namespace lockstep
