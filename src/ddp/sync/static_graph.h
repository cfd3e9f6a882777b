// What static_graph learns in the first pass: how often each parameter's gradient arrives, and in which order.
//
// Pure bookkeeping. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::detail {

class StaticGraph {
 public:
  explicit StaticGraph(std::size_t parameter_count) : counts_(parameter_count, 0) {}

  // False until the first pass is over.
  bool known() const { return known_; }
  // A gradient arrived in the first pass.
  void arrived(std::size_t parameter);
  bool any_arrived() const { return !order_.empty(); }
  // The first pass is over. `shadowed`: this rank took part without a backward of its own, so it has seen nothing.
  void finish(bool shadowed);
  // A rank that has seen nothing takes another rank's counts; any other keeps its own, since ranks may differ.
  void adopt(const std::vector<std::int64_t>& counts);

  // Arrivals in each pass, per parameter.
  const std::vector<std::int64_t>& counts() const { return counts_; }
  // Parameters in the order of their first arrival.
  const std::vector<std::size_t>& order() const { return order_; }
  // Parameters that never get a gradient, ascending; empty until the first pass is over.
  std::vector<std::size_t> unused() const;

 private:
  bool known_ = false;
  bool shadowed_ = false;
  std::vector<std::int64_t> counts_;
  std::vector<std::size_t> order_;
};

}  // namespace lockstep::detail
