#include "bench/worker/operation.h"

#include <algorithm>

namespace lockstep::bench {

Shape shape_of(Collective collective, DType dtype, int ranks, std::size_t bytes) {
  const std::size_t element = element_size(dtype);
  const std::size_t parts = static_cast<std::size_t>(ranks);
  const std::size_t whole = std::max<std::size_t>(1, bytes / element);
  const std::size_t part = std::max<std::size_t>(1, bytes / element / parts);
  switch (collective) {
    case Collective::all_reduce:
    case Collective::broadcast: return {whole * element, whole, whole, true};
    case Collective::all_gather: return {part * parts * element, part, part * parts, false};
    case Collective::reduce_scatter: return {part * parts * element, part * parts, part, false};
    case Collective::barrier: return {0, 0, 0, true};
  }
  return {};
}

}  // namespace lockstep::bench
