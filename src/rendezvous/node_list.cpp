#include "rendezvous/node_list.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>

#include "base/printable.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxListBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxNameBytes = 255;
constexpr std::size_t kMaxDigits = 10;

Status wrong(std::string_view list, std::string_view what) {
  return Status(StatusCode::invalid_argument,
                fmt::format("'{}' is not a list of hosts: {}; expected something like node[01-03,07],gpu1",
                            printable(list.substr(0, 200)), what));
}

std::optional<std::uint32_t> number(std::string_view digits) {
  std::uint32_t value = 0;
  if (digits.size() > kMaxDigits) return std::nullopt;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// Removes and returns the part of `text` before the next `separator`, and the separator itself.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return part;
}

// "01-03,07" into its numbers as texts.
Result<std::vector<std::string>> expand_ranges(std::string_view list, std::string_view ranges) {
  if (ranges.empty() || ranges.back() == ',') return wrong(list, "a bracket lacks a number");
  std::vector<std::string> numbers;
  while (!ranges.empty()) {
    const std::string_view range = take_until(ranges, ',');
    const std::string_view first_digits = range.substr(0, range.find('-'));
    const std::string_view last_digits =
        first_digits.size() < range.size() ? range.substr(first_digits.size() + 1) : first_digits;
    const auto first = number(first_digits);
    const auto last = number(last_digits);
    if (!first || !last) return wrong(list, fmt::format("'{}' is not a number or range", printable(range)));
    if (*last < *first) return wrong(list, fmt::format("the range '{}' runs backwards", printable(range)));
    if (*last - *first >= kMaxListedNodes - numbers.size()) {
      return wrong(list, fmt::format("there are more than {} hosts", kMaxListedNodes));
    }
    for (std::uint64_t value = *first; value <= *last; ++value) {
      numbers.push_back(fmt::format("{:0{}}", value, first_digits.size()));
    }
  }
  return numbers;
}

// One host with its brackets: every name so far with every number of the bracket.
Result<std::vector<std::string>> expand_item(std::string_view list, std::string_view item, std::size_t limit) {
  std::vector<std::string> names(1);
  while (!item.empty()) {
    const std::size_t open = item.find('[');
    const std::string_view literal = item.substr(0, open);
    if (names.front().size() + literal.size() > kMaxNameBytes) return wrong(list, "a host name is too long");
    for (auto& name : names) name += literal;
    if (open == std::string_view::npos) break;
    item.remove_prefix(open + 1);
    const auto numbers = expand_ranges(list, take_until(item, ']'));
    if (!numbers.ok()) return numbers.status();
    if (names.size() * numbers->size() > limit) {
      return wrong(list, fmt::format("there are more than {} hosts", kMaxListedNodes));
    }
    std::vector<std::string> longer;
    longer.reserve(names.size() * numbers->size());
    for (const auto& name : names) {
      for (const auto& text : *numbers) longer.push_back(name + text);
    }
    names = std::move(longer);
  }
  return names;
}

// The length of the first host with its brackets; nothing if they do not match.
std::optional<std::size_t> item_length(std::string_view list) {
  bool inside = false;
  std::size_t at = 0;
  for (; at < list.size() && (inside || list[at] != ','); ++at) {
    if (list[at] == (inside ? '[' : ']')) return std::nullopt;
    if (list[at] == '[' || list[at] == ']') inside = !inside;
  }
  if (inside) return std::nullopt;
  return at;
}

}  // namespace

Result<std::vector<std::string>> expand_node_list(std::string_view list) {
  if (list.size() > kMaxListBytes) return wrong(list, "it is too long");
  std::vector<std::string> names;
  std::string_view rest = list;
  while (true) {
    const auto length = item_length(rest);
    if (!length) return wrong(list, "its brackets do not match");
    const std::string_view item = rest.substr(0, *length);
    if (item.empty()) return wrong(list, "a host is missing");
    for (const char c : item) {
      if (static_cast<unsigned char>(c) <= ' ' || static_cast<unsigned char>(c) >= 0x7F) {
        return wrong(list, "it contains a character that is not allowed in host names");
      }
    }
    auto expanded = expand_item(list, item, kMaxListedNodes - names.size());
    if (!expanded.ok()) return expanded.status();
    if (names.size() == kMaxListedNodes) return wrong(list, fmt::format("there are more than {} hosts", names.size()));
    for (auto& name : *expanded) names.push_back(std::move(name));
    if (*length == rest.size()) return names;
    rest.remove_prefix(*length + 1);
  }
}

}  // namespace lockstep
