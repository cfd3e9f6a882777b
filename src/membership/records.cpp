#include "membership/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep::membership {

using nlohmann::json;

namespace {

// Far above what a job needs, but small enough to be harmless.
constexpr std::size_t kMaxBytes = std::size_t{8} << 20;
constexpr std::size_t kMaxMembers = 65536;
constexpr const char* kKinds[] = {"join", "again", "give_up", "finished"};

// Names of hosts and messages may be any bytes: those that are not UTF-8, which JSON needs, are replaced.
std::string text_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json to_json(const Member& member) {
  return {{"id", member.id},
          {"host", member.host},
          {"pid", member.pid},
          {"started", member.started},
          {"store", member.store_address},
          {"site", member.site},
          {"attester", member.attester}};
}

json to_json(const Generation& generation) {
  json members = json::array();
  for (const Member& member : generation.members) members.push_back(to_json(member));
  return {{"number", generation.number},   {"id", generation.id},           {"job", generation.job},
          {"members", std::move(members)}, {"witness", generation.witness}, {"outdated", generation.outdated}};
}

Member member_from(const json& value) {
  return {.id = value.at("id").get<std::string>(),
          .host = value.at("host").get<std::string>(),
          .pid = value.at("pid").get<std::int64_t>(),
          .started = value.at("started").get<std::int64_t>(),
          .store_address = value.at("store").get<std::string>(),
          .site = value.at("site").get<std::string>(),
          .attester = value.at("attester").get<std::string>()};
}

Generation generation_from(const json& value) {
  Generation generation{.number = value.at("number").get<std::int64_t>(),
                        .id = value.at("id").get<std::string>(),
                        .job = value.at("job").get<std::string>(),
                        .members = {}};
  const json& members = value.at("members");
  if (!members.is_array() || members.size() > kMaxMembers) throw std::invalid_argument("not a valid list of members");
  for (const json& member : members) generation.members.push_back(member_from(member));
  generation.witness = value.at("witness").get<std::string>();
  generation.outdated = value.value("outdated", std::vector<int>());  // older rosters have none
  const auto size = static_cast<int>(generation.members.size());
  if (std::ranges::any_of(generation.outdated, [size](int rank) { return rank < 0 || rank >= size; })) {
    throw std::invalid_argument("an outdated state is that of no member");
  }
  return generation;
}

Registration registration_from(const json& value) {
  return {.member = member_from(value.at("member")),
          .accepted = generation_from(value.at("accepted")),
          .established = generation_from(value.at("established")),
          .step = value.at("step").get<std::int64_t>(),
          .void_ids = value.at("void").get<std::vector<std::string>>()};
}

Answer answer_from(const json& value) {
  Answer answer;
  const auto kind = value.at("kind").get<std::string>();
  const auto* const found = std::find(std::begin(kKinds), std::end(kKinds), kind);
  if (found == std::end(kKinds)) throw std::invalid_argument("unknown kind of answer");
  answer.kind = static_cast<Answer::Kind>(found - std::begin(kKinds));
  answer.generation = generation_from(value.at("generation"));
  answer.source = value.at("source").get<int>();
  answer.transfer = value.at("transfer").get<bool>();
  answer.reason = value.at("reason").get<std::string>();
  answer.void_ids = value.at("void").get<std::vector<std::string>>();
  const auto size = static_cast<int>(answer.generation.members.size());
  if (answer.kind == Answer::Kind::join && (answer.source < 0 || answer.source >= size)) {
    throw std::invalid_argument("the source is not a member");
  }
  return answer;
}

template <typename Record>
Result<Record> parse(std::string_view text, const char* what, Record (*from)(const json&)) {
  const auto malformed = [what](const char* why) {
    return Status(StatusCode::protocol_error, fmt::format("not {} of an elastic job: {}", what, why));
  };
  if (text.size() > kMaxBytes) return malformed("too long");
  try {
    return from(json::parse(text));
  } catch (const std::exception& error) {
    return malformed(error.what());
  }
}

}  // namespace

std::string Member::describe() const { return fmt::format("host {}, pid {}", host, pid); }

std::vector<std::string> Generation::ids() const {
  std::vector<std::string> result;
  for (const Member& member : members) result.push_back(member.id);
  return result;
}

int Generation::rank_of(const std::string& member_id) const {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].id == member_id) return static_cast<int>(i);
  }
  return -1;
}

bool Generation::is_outdated(int rank) const { return std::ranges::find(outdated, rank) != outdated.end(); }

std::string format(const Generation& generation) { return text_of(to_json(generation)); }

std::string format(const Registration& registration) {
  return text_of({{"member", to_json(registration.member)},
                  {"accepted", to_json(registration.accepted)},
                  {"established", to_json(registration.established)},
                  {"step", registration.step},
                  {"void", registration.void_ids}});
}

std::string format(const Answer& answer) {
  return text_of({{"kind", kKinds[static_cast<int>(answer.kind)]},
                  {"generation", to_json(answer.generation)},
                  {"source", answer.source},
                  {"transfer", answer.transfer},
                  {"reason", answer.reason},
                  {"void", answer.void_ids}});
}

Result<Generation> parse_generation(std::string_view text) {
  return parse<Generation>(text, "a generation", generation_from);
}
Result<Registration> parse_registration(std::string_view text) {
  return parse<Registration>(text, "a registration", registration_from);
}
Result<Answer> parse_answer(std::string_view text) { return parse<Answer>(text, "an answer", answer_from); }

}  // namespace lockstep::membership
