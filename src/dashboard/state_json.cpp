#include "dashboard/state_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep::dashboard {
namespace {

using nlohmann::json;

// With the four digits that a page can show, a state takes half as many bytes.
json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0;
  const double scale = std::pow(10, 3 - std::floor(std::log10(std::abs(value))));
  if (!std::isfinite(scale) || scale == 0) return value;
  return std::round(value * scale) / scale;
}
json milliseconds(double seconds) { return rounded(seconds * 1e3); }
// Seconds since 1970, to the millisecond.
json moment(double seconds) { return std::round(seconds * 1e3) / 1e3; }

std::string_view name_of(RankCondition condition) {
  switch (condition) {
    case RankCondition::starting: return "starting";
    case RankCondition::running: return "running";
    case RankCondition::finished: return "finished";
    case RankCondition::failed: return "failed";
  }
  return "unknown";
}

std::string_view name_of(Summary::Level level) {
  switch (level) {
    case Summary::Level::good: return "good";
    case Summary::Level::attention: return "attention";
    case Summary::Level::bad: return "bad";
    case Summary::Level::over: return "over";
  }
  return "unknown";
}

json split_json(const StepSplit& split) {
  if (split.steps == 0) return nullptr;
  json own = json::array(), buckets = json::array();
  for (const double seconds : split.own) own.push_back(milliseconds(seconds));
  for (const double seconds : split.buckets) buckets.push_back(milliseconds(seconds));
  return {{"total", milliseconds(split.total)},
          {"exposed", milliseconds(split.exposed)},
          {"own", own},
          {"buckets", buckets}};
}

json rank_json(const RankState& rank) {
  json encoded = {{"name", rank.name},
                  {"rank", rank.rank},
                  {"local_rank", rank.local_rank},
                  {"host", rank.host},
                  {"pid", rank.pid},
                  {"starts", rank.starts},
                  {"condition", name_of(rank.condition)},
                  {"end", rank.end},
                  {"generation", rank.generation},
                  {"step", rank.step},
                  {"step_age", rounded(rank.step_age)},
                  {"phase", rank.phase},
                  {"phase_age", rounded(rank.phase_age)},
                  {"operation", rank.operation},
                  {"operation_age", rounded(rank.operation_age)},
                  {"failure", rank.failure},
                  {"split", split_json(rank.split)},
                  {"usage", nullptr}};
  if (rank.usage) {
    encoded["usage"] = {{"cores", rounded(rank.usage->cores)},
                        {"memory", rank.usage->resident_bytes},
                        {"threads", rank.usage->threads}};
  }
  return encoded;
}

json straggler_json(const StragglerReport& report) {
  if (!report.straggler) return nullptr;
  const Straggler& late = *report.straggler;
  return {{"rank", late.rank},
          {"host", late.host},
          {"phase", static_cast<std::uint32_t>(late.phase)},
          {"bucket", late.bucket},
          {"last_fraction", rounded(late.last_fraction)},
          {"cost", milliseconds(late.cost_seconds)},
          {"excess", milliseconds(late.excess_seconds)},
          {"speedup", rounded(late.speedup)},
          {"text", report.to_string()}};
}

// The page tells curves apart by their names: a metric whose name begins like that of our own curve gets an addition.
std::string shown_name(const Curve& curve) {
  const bool similar = curve.x_name() == "step" && curve.name().starts_with(kSpeedCurve);
  return similar ? curve.name() + " (metric)" : curve.name();
}

json curve_json(const Curve& curve, std::uint64_t since) {
  json points = json::array();
  for (std::size_t i = curve.first_after(since); i < curve.points().size(); ++i) {
    const Curve::Point& point = curve.points()[i];
    points.push_back({moment(point.x), rounded(point.y)});
  }
  return {{"name", shown_name(curve)},
          {"x", curve.x_name()},
          {"reset", since == 0 || curve.rewritten_since(since)},
          {"points", std::move(points)}};
}

}  // namespace

std::string state_json(const JobState& state, std::uint64_t since) {
  const Summary summary = summarise(state);
  json phases = json::array(), ranks = json::array(), curves = json::array(), events = json::array();
  for (std::size_t kind = 0; kind < kPhaseKinds; ++kind) phases.push_back(to_string(static_cast<PhaseKind>(kind)));
  for (const RankState& rank : state.ranks) ranks.push_back(rank_json(rank));
  for (const Curve& curve : state.curves) curves.push_back(curve_json(curve, since));
  for (const JobEvent& event : state.events) {
    if (event.tick > since)
      events.push_back({{"time", moment(event.time)}, {"kind", to_string(event.kind)}, {"text", event.text}});
  }
  const JobFacts& facts = state.facts;
  const json encoded = {{"version", 1},
                        {"tick", state.tick},
                        {"since", since},
                        {"now", moment(state.now)},
                        {"job",
                         {{"command", facts.command},
                          {"run_id", facts.run_id},
                          {"host", facts.host},
                          {"launcher", facts.launcher_pid},
                          {"elastic", facts.elastic},
                          {"ranks", facts.ranks},
                          {"started", moment(facts.started)},
                          {"node", state.node},
                          {"nodes", state.nodes},
                          {"world_size", state.world_size},
                          {"round", state.round},
                          {"over", state.conclusion.has_value()},
                          {"failures", state.failures}}},
                        {"sentence", summary.sentence},
                        {"level", name_of(summary.level)},
                        {"waiting", state.waiting},
                        {"steps_per_second", rounded(state.steps_per_second)},
                        {"compared_steps", state.stragglers.steps},
                        {"step_ms", milliseconds(state.stragglers.step_seconds)},
                        {"communication_ms", milliseconds(state.stragglers.communication_seconds)},
                        {"seconds_left", state.seconds_left ? rounded(*state.seconds_left) : json(nullptr)},
                        {"straggler", straggler_json(state.stragglers)},
                        {"phases", phases},
                        {"ranks", ranks},
                        {"curves", curves},
                        {"events", events}};
  return encoded.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace lockstep::dashboard
