#include "dashboard/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/utf8.h"

namespace lockstep::dashboard {
namespace {

// The format is UTF-8, with three characters escaped.
std::string label_value(std::string_view text) {
  std::string value;
  while (!text.empty()) {
    const std::size_t size = utf8_character(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(size, 1));
    if (character == "\\" || character == "\"") value += '\\';
    if (character == "\n") {
      value += "\\n";
    } else if (size == 0) {
      value += "\xEF\xBF\xBD";
    } else {
      value += character;
    }
    text.remove_prefix(character.size());
  }
  return value;
}

// One family of samples: its help and type come first, and only if it has a sample.
class Family {
 public:
  Family(std::string& text, std::string_view name, std::string_view type, std::string_view help)
      : text_(text), name_(name), type_(type), help_(help) {}

  void add(std::string_view labels, double value) {
    if (!std::exchange(begun_, true)) {
      fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name_, help_, name_, type_);
    }
    const std::string braces = labels.empty() ? "" : fmt::format("{{{}}}", labels);
    fmt::format_to(std::back_inserter(text_), "{}{} {}\n", name_, braces, number(value));
  }

 private:
  static std::string number(double value) {
    if (value != value) return "NaN";
    if (value - value != 0) return value > 0 ? "+Inf" : "-Inf";
    return fmt::format("{}", value);
  }

  std::string& text_;
  const std::string_view name_, type_, help_;
  bool begun_ = false;
};

// Labels must not change from one scrape to the next: a rank that is replaced keeps its name.
std::string labels_of(const RankState& rank) {
  return fmt::format("name=\"{}\",host=\"{}\"", label_value(rank.name), label_value(rank.host));
}

void write_ranks(const JobState& state, std::string& text) {
  const auto family = [&](std::string_view name, std::string_view type, std::string_view help, const auto& value) {
    Family samples(text, name, type, help);
    for (const RankState& rank : state.ranks) value(samples, rank, labels_of(rank));
  };
  family("lockstep_rank_up", "gauge", "1 while the process of the rank runs.",
         [](Family& samples, const RankState& rank, const std::string& labels) {
           const bool up = rank.condition == RankCondition::running || rank.condition == RankCondition::starting;
           samples.add(labels, up ? 1 : 0);
         });
  family("lockstep_rank_number", "gauge", "The number of the rank in the world; it may change with the generation.",
         [](Family& samples, const RankState& rank, const std::string& labels) {
           if (rank.rank >= 0) samples.add(labels, rank.rank);
         });
  family("lockstep_rank_starts", "gauge", "How often the rank was started.",
         [](Family& samples, const RankState& rank, const std::string& labels) { samples.add(labels, rank.starts); });
  family("lockstep_rank_steps_total", "counter", "Steps that the process of the rank has completed.",
         [](Family& samples, const RankState& rank, const std::string& labels) {
           samples.add(labels, double(rank.counted_steps));
         });
  family("lockstep_rank_snapshots_total", "counter", "Snapshots in which the process of the rank took part.",
         [](Family& samples, const RankState& rank, const std::string& labels) {
           samples.add(labels, double(rank.counted_snapshots));
         });
  family("lockstep_rank_own_seconds_total", "counter",
         "Time of the rank in each part of its steps, without waiting for other ranks.",
         [](Family& samples, const RankState& rank, const std::string& labels) {
           for (std::size_t kind = 0; kind < kPhaseKinds; ++kind) {
             if (rank.counted_own[kind] <= 0) continue;
             samples.add(fmt::format("{},phase=\"{}\"", labels, to_string(static_cast<PhaseKind>(kind))),
                         rank.counted_own[kind]);
           }
         });
  family("lockstep_rank_exposed_wait_seconds_total", "counter",
         "Time that the rank waited for communication at the end of backward.",
         [](Family& samples, const RankState& rank, const std::string& labels) {
           samples.add(labels, rank.counted_exposed);
         });
  family("lockstep_rank_operation_age_seconds", "gauge", "How long the collective of the rank has been running.",
         [](Family& samples, const RankState& rank, const std::string& labels) {
           samples.add(labels, rank.operation_age);
         });
  family("lockstep_rank_cpu_seconds_total", "counter", "Processor time of the process of the rank.",
         [](Family& samples, const RankState& rank, const std::string& labels) {
           if (rank.usage) samples.add(labels, rank.usage->cpu_seconds);
         });
  family("lockstep_rank_resident_bytes", "gauge", "Memory of the process of the rank.",
         [](Family& samples, const RankState& rank, const std::string& labels) {
           if (rank.usage) samples.add(labels, double(rank.usage->resident_bytes));
         });
  family("lockstep_rank_threads", "gauge", "Threads of the process of the rank.",
         [](Family& samples, const RankState& rank, const std::string& labels) {
           if (rank.usage) samples.add(labels, rank.usage->threads);
         });
}

void write_straggler(const JobState& state, std::string& text) {
  if (!state.stragglers.straggler) return;
  const Straggler& late = *state.stragglers.straggler;
  const std::string labels = fmt::format("rank=\"{}\",phase=\"{}\"", late.rank, label_value(to_string(late.phase)));
  Family(text, "lockstep_straggler_cost_seconds", "gauge", "Of each step, how long all others wait for this rank.")
      .add(labels, late.cost_seconds);
  Family(text, "lockstep_straggler_speedup_ratio", "gauge", "How many times as fast the job would be without it.")
      .add(labels, late.speedup);
}

// What the program logs, by its own names.
void write_metrics(const JobState& state, std::string& text) {
  Family values(text, "lockstep_training_metric", "gauge", "The latest value of a metric that the program logs.");
  for (const Curve& curve : state.curves) {
    if (curve.x_name() != "step" || !curve.latest()) continue;
    values.add(fmt::format("metric=\"{}\"", label_value(curve.name())), curve.latest()->y);
  }
}

}  // namespace

std::string prometheus_text(const JobState& state) {
  std::string text;
  const auto gauge = [&](std::string_view name, std::string_view help, double value) {
    Family(text, name, "gauge", help).add("", value);
  };
  Family(text, "lockstep_job_info", "gauge", "The job of this launcher.")
      .add(fmt::format("run_id=\"{}\",host=\"{}\",node=\"{}\"", label_value(state.facts.run_id),
                       label_value(state.facts.host), state.node),
           1);
  gauge("lockstep_job_start_time_seconds", "When the launcher started, in seconds since 1970.", state.facts.started);
  gauge("lockstep_job_world_size", "Ranks of the job on all nodes.", state.world_size);
  gauge("lockstep_job_round", "The number of the round.", state.round);
  Family(text, "lockstep_job_rank_failures_total", "counter", "Ranks of this launcher that ended with a failure.")
      .add("", double(state.failures));
  gauge("lockstep_job_steps_per_second", "The speed of the job over the last steps; 0: unknown.",
        state.steps_per_second);
  gauge("lockstep_job_step_seconds", "The median duration of the recent steps; 0: unknown.",
        state.stragglers.step_seconds);
  gauge("lockstep_job_exposed_communication_seconds",
        "Of each recent step, how long even the last rank waited for the network.",
        state.stragglers.communication_seconds);
  write_straggler(state, text);
  write_ranks(state, text);
  write_metrics(state, text);
  return text;
}

}  // namespace lockstep::dashboard
