#include "doctor/finding.h"

#include <algorithm>

namespace lockstep::doctor {

const char* to_string(Level level) {
  switch (level) {
    case Level::green: return "green";
    case Level::yellow: return "yellow";
    case Level::red: return "red";
  }
  return "red";
}

Level worst(const std::vector<Finding>& findings) {
  Level level = Level::green;
  for (const Finding& finding : findings) level = std::max(level, finding.level);
  return level;
}

}  // namespace lockstep::doctor
