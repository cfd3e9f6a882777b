#include "membership/roster.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <vector>

#include "base/failpoint.h"
#include "base/small_file.h"

namespace lockstep::membership {
namespace {

constexpr const char* kRunning = "running";
constexpr const char* kFinished = "finished";

}  // namespace

std::string format(const Roster& roster) {
  return fmt::format("{}\n{}\n{}\n", roster.generation.number, roster.finished ? kFinished : kRunning,
                     format(roster.generation));
}

Result<Roster> parse_roster(std::string_view text) {
  const auto take_line = [&text] {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    return line;
  };
  take_line();  // the number
  const std::string_view state = take_line(), generation = take_line();
  if (state != kRunning && state != kFinished) {
    return Status(StatusCode::protocol_error, fmt::format("not a roster: its second line is '{:.20}'", state));
  }
  auto parsed = parse_generation(generation);
  if (!parsed.ok()) return parsed.status();
  return Roster{.generation = *std::move(parsed), .finished = state == kFinished};
}

namespace {

// Older ones are of no use: nobody can accept them any more.
constexpr std::int64_t kKept = 16;

std::string finished_path(const std::string& path) { return path + ".finished"; }
std::string numbered_path(const std::string& path, std::int64_t number) { return fmt::format("{}.{}", path, number); }

// The numbers of the generations that have a file.
Result<std::vector<std::int64_t>> find_numbers(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string name = path.substr(slash + 1) + ".";
  const auto names = list_folder(slash == std::string::npos ? "." : path.substr(0, slash + 1));
  if (!names.ok()) return names.status();
  std::vector<std::int64_t> numbers;
  for (const std::string& one : *names) {
    std::int64_t number = 0;
    const char* const end = one.data() + one.size();
    if (!one.starts_with(name)) continue;
    const auto parsed = std::from_chars(one.data() + name.size(), end, number);
    if (parsed.ec == std::errc() && parsed.ptr == end) numbers.push_back(number);
  }
  return numbers;
}

Result<std::optional<Roster>> read_one(const std::string& path) {
  const auto text = read_small_file(path);
  if (!text.ok()) return text.status();
  if (!*text) return std::optional<Roster>();
  auto roster = parse_roster(**text);
  if (!roster.ok()) return roster.status().with_context(path);
  return std::optional<Roster>(*std::move(roster));
}

}  // namespace

Result<Roster> read_roster(const std::string& path) {
  const auto finished = read_one(finished_path(path));
  if (!finished.ok()) return finished.status();
  if (*finished) return **finished;
  while (true) {
    const auto numbers = find_numbers(path);
    if (!numbers.ok()) return numbers.status().with_context("the roster");
    if (numbers->empty()) return Roster{};
    const auto newest = read_one(numbered_path(path, *std::max_element(numbers->begin(), numbers->end())));
    if (!newest.ok()) return newest.status();
    if (*newest) return **newest;
    // It was removed since it was listed, because there are much newer ones.
  }
}

Result<std::vector<Generation>> read_accepted(const std::string& path, std::size_t count) {
  auto numbers = find_numbers(path);
  if (!numbers.ok()) return numbers.status().with_context("the roster");
  std::ranges::sort(*numbers, std::greater());
  std::vector<Generation> accepted;
  auto finished = read_one(finished_path(path));  // of another host, perhaps: then it has no other file
  if (!finished.ok()) return finished.status();
  if (*finished && std::ranges::find(*numbers, (*finished)->generation.number) == numbers->end()) {
    accepted.push_back(std::move((*finished)->generation));
  }
  for (const std::int64_t number : *numbers) {
    if (accepted.size() == count) break;
    auto one = read_one(numbered_path(path, number));
    if (!one.ok()) return one.status();
    if (*one) accepted.push_back(std::move((*one)->generation));  // otherwise it was removed since it was listed
  }
  return accepted;
}

Result<std::int64_t> newest_number(const std::string& path) {
  const auto numbers = find_numbers(path);
  if (!numbers.ok()) return numbers.status().with_context("the roster");
  return numbers->empty() ? 0 : *std::max_element(numbers->begin(), numbers->end());
}

Status check_writable(const std::string& path) {
  constexpr std::size_t kUsualBytes = 16 << 10;
  const std::string file = fmt::format("{}.check.{}", path, ::getpid());
  ::unlink(file.c_str());
  const Status created = create_small_file(file, std::string(kUsualBytes, '\n'));
  ::unlink(file.c_str());
  return created.ok() ? created : created.with_context("the roster");
}

Result<Roster> offer_roster(const std::string& path, const Roster& roster) {
  auto present = read_roster(path);
  if (!present.ok() || present->finished) return present;
  const std::int64_t number = roster.generation.number;
  const bool same = present->generation.id == roster.generation.id;
  if (present->generation.number > number || (present->generation.number == number && !same)) return present;
  if (same && !roster.finished) return present;  // accepted before
  failpoint("roster.offer");
  const std::string file = roster.finished ? finished_path(path) : numbered_path(path, number);
  const Status created = create_small_file(file, format(roster));
  if (!created.ok() && created.code() != StatusCode::already_exists) return created.with_context("the roster");
  failpoint("roster.accepted");
  present = read_roster(path);  // another process may have been faster
  if (!present.ok() || present->generation.id != roster.generation.id) return present;
  const auto numbers = find_numbers(path);
  for (const std::int64_t old : numbers.ok() ? *numbers : std::vector<std::int64_t>()) {
    if (old < number - kKept) ::unlink(numbered_path(path, old).c_str());
  }
  return present;
}

}  // namespace lockstep::membership
