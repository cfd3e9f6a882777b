#include "ddp/model_fuzz/outcome.h"

#include <algorithm>
#include <cctype>

namespace lockstep::fuzz {

namespace {

constexpr const char* kNames[] = {"fine", "wrong", "refused", "hung", "crashed", "invalid", "collateral"};
constexpr std::size_t kKinds = std::size(kNames);
constexpr char kSeparator = '\x1f';

int importance(Outcome::Kind kind) {
  switch (kind) {
    case Outcome::Kind::invalid: return 6;
    case Outcome::Kind::crashed: return 5;
    case Outcome::Kind::refused: return 4;
    case Outcome::Kind::hung: return 3;
    case Outcome::Kind::wrong: return 2;
    case Outcome::Kind::collateral: return 1;
    case Outcome::Kind::fine: return 0;
  }
  return 0;
}

}  // namespace

const char* name_of(Outcome::Kind kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::string to_text(const Outcome& outcome) {
  return std::string(name_of(outcome.kind)) + kSeparator + outcome.check + kSeparator + outcome.detail;
}

Outcome outcome_from_text(const std::string& text) {
  const std::size_t first = text.find(kSeparator), second = text.find(kSeparator, first + 1);
  Outcome outcome{Outcome::Kind::invalid, "unreadable", text};
  if (second == std::string::npos) return outcome;
  for (std::size_t i = 0; i < kKinds; ++i) {
    if (text.compare(0, first, kNames[i]) == 0) outcome.kind = static_cast<Outcome::Kind>(i);
  }
  outcome.check = text.substr(first + 1, second - first - 1);
  outcome.detail = text.substr(second + 1);
  return outcome;
}

Outcome worst_of(const std::vector<Outcome>& outcomes) {
  return *std::max_element(outcomes.begin(), outcomes.end(),
                           [](const Outcome& a, const Outcome& b) { return importance(a.kind) < importance(b.kind); });
}

std::string category_of_message(const std::string& message) {
  std::string result;
  int brackets = 0;
  bool quoted = false, number = false;
  for (char c : message) {
    if (c == '"') quoted = !quoted;
    if (c == '[') ++brackets;
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    const bool shown = !quoted && brackets == 0;
    if (shown && digit && !number) result += '#';
    if (shown && !digit && c != '"') result += c;
    number = digit;
    if (c == ']') --brackets;
    if (result.size() > 160 || (c == '.' && result.size() > 40)) break;
  }
  return result;
}

}  // namespace lockstep::fuzz
