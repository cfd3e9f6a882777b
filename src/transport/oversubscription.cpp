#include "transport/oversubscription.h"

#include <sched.h>

#include <algorithm>

namespace lockstep {

int less_loaded_processor(std::span<const int> where, int me, std::span<const int> allowed) {
  const int here = where[static_cast<std::size_t>(me)];
  const auto ranks_on = [&](int processor) { return std::count(where.begin(), where.end(), processor); };
  const bool last_here = std::find(where.begin() + me + 1, where.end(), here) == where.end();
  const auto crowd = ranks_on(here);
  if (!last_here || crowd < 2) return -1;
  const auto emptiest =
      std::min_element(allowed.begin(), allowed.end(), [&](int a, int b) { return ranks_on(a) < ranks_on(b); });
  return emptiest != allowed.end() && ranks_on(*emptiest) + 2 <= crowd ? *emptiest : -1;
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
