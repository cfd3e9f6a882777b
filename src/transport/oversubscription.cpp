#include "transport/oversubscription.h"

#include <sched.h>

#include <algorithm>

namespace lockstep {

int less_oversubscribed_processor(std::span<const int> processor_of, int me, std::span<const int> allowed) {
  const int here = processor_of[static_cast<std::size_t>(me)];
  const auto ranks_on = [&](int processor) { return std::count(processor_of.begin(), processor_of.end(), processor); };
  const bool last_here = std::find(processor_of.begin() + me + 1, processor_of.end(), here) == processor_of.end();
  const auto ranks_here = ranks_on(here);
  if (!last_here || ranks_here < 2) return -1;
  const auto emptiest =
      std::min_element(allowed.begin(), allowed.end(), [&](int a, int b) { return ranks_on(a) < ranks_on(b); });
  return emptiest != allowed.end() && ranks_on(*emptiest) + 2 <= ranks_here ? *emptiest : -1;
}

void move_to_processor(int processor) {
  cpu_set_t before;
  if (::sched_getaffinity(0, sizeof(before), &before) != 0 || !CPU_ISSET(processor, &before)) return;
  cpu_set_t there;
  CPU_ZERO(&there);
  CPU_SET(processor, &there);
  ::sched_setaffinity(0, sizeof(there), &there);
  ::sched_setaffinity(0, sizeof(before), &before);
}

}  // namespace lockstep
