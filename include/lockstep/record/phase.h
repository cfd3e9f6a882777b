// Marks for the parts of a training loop, so that reports and timelines can name them.
//
// DDP marks forward, backward and its buckets; Lockstep's optimizers, elastic::run and Snapshots mark their parts. What
// lies between the end of a backward and the next forward counts as `other` unless the program marks it:
//
//   {
//     lockstep::Phase phase(lockstep::PhaseKind::data);
//     batch = loader.next();
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class PhaseKind : std::uint32_t {
  data,
  forward,
  backward,
  optimizer,
  commit,  // elastic::run
  snapshot,
  other,
  exposed_wait,  // for communication, after all gradients were computed
  bucket,        // from its first gradient to its average
  generation,    // an elastic job continues with other members
  user,          // what the program marks otherwise
};
inline constexpr std::size_t kPhaseKinds = 11;
std::string_view to_string(PhaseKind kind);  // "data loading"

// The time from construction to destruction, on this thread. Phases may be nested: the time of an inner one does not
// count for the outer one. Costs about 50 ns and never throws.
class Phase {
 public:
  explicit Phase(PhaseKind kind, std::uint32_t index = 0) noexcept;
  ~Phase();
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  const PhaseKind kind_;
  const std::uint32_t index_;
  std::uint64_t begin_;
  std::uint64_t blocked_;
  std::uint64_t inner_;
  std::uint32_t outer_;
};

}  // namespace lockstep
