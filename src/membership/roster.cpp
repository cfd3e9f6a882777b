#include "membership/roster.h"

#include <fmt/format.h>

#include <sstream>

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
  std::istringstream lines{std::string(text)};
  std::string number, state, generation;
  std::getline(lines, number);
  std::getline(lines, state);
  std::getline(lines, generation);
  if (state != kRunning && state != kFinished) {
    return Status(StatusCode::protocol_error, fmt::format("not a roster: its second line is '{:.20}'", state));
  }
  auto parsed = parse_generation(generation);
  if (!parsed.ok()) return parsed.status();
  return Roster{.generation = *std::move(parsed), .finished = state == kFinished};
}

Result<Roster> read_roster(const std::string& path) {
  const auto text = read_small_file(path);
  if (!text.ok()) return text.status().with_context("the roster");
  return *text ? parse_roster(**text) : Roster{};
}

Result<Roster> offer_roster(const std::string& path, const Roster& roster) {
  const auto lock = FileLock::acquire(path + ".lock");
  if (!lock.ok()) return lock.status().with_context("the roster");
  auto present = read_roster(path);
  if (!present.ok()) return present;
  const bool same = present->generation.id == roster.generation.id;
  const bool is_newer = roster.generation.number > present->generation.number ||
                        (same && roster.finished && !present->finished);
  if (!is_newer || present->finished) return present;
  LOCKSTEP_RETURN_IF_ERROR(replace_small_file(path, format(roster)).with_context("the roster"));
  return roster;
}

}  // namespace lockstep::membership
