// How long the attempts to make one link may take: each twice as long as the one before, up to a limit. The first ones
// are short, because a packet may have been lost, and the limit leaves time for slow networks: a link takes four round
// trips.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep {

class AttemptTime {
 public:
  AttemptTime(std::chrono::milliseconds first, std::chrono::milliseconds longest) : next_(first), longest_(longest) {}

  std::chrono::milliseconds next() { return std::exchange(next_, std::min(2 * next_, longest_)); }

 private:
  std::chrono::milliseconds next_;
  std::chrono::milliseconds longest_;
};

}  // namespace lockstep
