// Metrics over the samples of all ranks. Each rank adds its own; compute() divides the sum of all ranks by their count,
// so that ranks with more samples count for more. (The average of the ranks' averages would be wrong for uneven
// shards.)
//
//   lockstep::Accuracy accuracy;
//   for (const auto& batch : shard) accuracy.add(model(batch.data), batch.target);
//   const double all = accuracy.compute();      // the same bits on every rank
//
// compute() is a collective: all ranks of the group call it, also those that have added nothing. It throws Error if the
// group fails. Sums are in double precision. Objects are not thread-safe.
#pragma once

#include <cstdint>

#include "lockstep/ddp/collectives.h"

namespace lockstep {

class Mean {
 public:
  // `weight`: how many samples `value` is the mean of. Throws Error if it is negative or not finite.
  void add(double value, double weight = 1);
  // Every element counts once.
  void add(const at::Tensor& values);

  // NaN if nothing was added on any rank. Values stay: reset() starts again.
  double compute(const TensorCallOptions& options = {}) const;
  // Of this rank alone; no collective.
  double local() const { return sum_ / weight_; }
  void reset() { *this = {}; }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

// The fraction of samples whose label is the class with the highest score, or among the `top` highest.
class Accuracy {
 public:
  explicit Accuracy(int top = 1);
  // scores: (N, classes); labels: N class numbers. Throws Error if the shapes do not fit or `top` exceeds the classes.
  void add(const at::Tensor& scores, const at::Tensor& labels);

  double compute(const TensorCallOptions& options = {}) const { return right_.compute(options); }
  double local() const { return right_.local(); }
  void reset() { right_.reset(); }

 private:
  int top_;
  Mean right_;
};

}  // namespace lockstep
