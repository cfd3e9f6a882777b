#include "bench/driver/report.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/worker/channel.h"

namespace lockstep::bench {
namespace {

// About three significant digits.
std::string number(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  if (value >= 10) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

std::string with_spread(const RatioSummary& ratio) {
  return fmt::format("{} ({}-{})", number(ratio.median), number(ratio.low), number(ratio.high));
}

std::string redop_of(Collective collective) { return reduces(collective) ? "sum" : "none"; }

template <typename T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

nlohmann::json spread_of(const RatioSummary& ratio) { return {{"low", ratio.low}, {"high", ratio.high}}; }

}  // namespace

std::string table_header(const std::vector<std::string>& peers, bool wire) {
  std::string titles = fmt::format(
      "#{:>11} {:>11} {:>6} {:>6} {:>9} {:>10} {:>10} {:>8} {:>8} {:>7} {:>10} {:>9} {:>18}", "size", "count", "type",
      "redop", "engine", "memory", "time", "algbw", "busbw", "#wrong", "p99", "CPU", "fraction of limit");
  std::string units =
      fmt::format("#{:>11} {:>11} {:>6} {:>6} {:>9} {:>10} {:>10} {:>8} {:>8} {:>7} {:>10} {:>9} {:>18}", "(B)",
                  "(elements)", "", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(s/GB)", "(low-high)");
  for (const std::string& peer : peers) {
    titles += fmt::format(" {:>20}", "speedup vs " + peer);
    units += fmt::format(" {:>20}", "(low-high)");
  }
  if (wire) {
    titles += fmt::format(" {:>12} {:>9}", "wire bytes", "x minimum");
    units += fmt::format(" {:>12} {:>9}", "(per op)", "");
  }
  return titles + "\n" + units + "\n";
}

std::string table_line(const Row& row, const std::vector<std::string>& peers, bool wire) {
  std::string line = fmt::format(
      " {:>11} {:>11} {:>6} {:>6} {:>9} {:>10} {:>10.2f} {:>8.2f} {:>8.2f} {:>7} {:>10.2f} {:>9} {:>18}", row.bytes,
      row.count, to_string(row.dtype), redop_of(row.collective), row.engine, row.memory, row.p50_us, row.algbw,
      row.busbw, row.wrong, row.p99_us, row.cpu_seconds_per_gb ? number(*row.cpu_seconds_per_gb) : "-",
      row.limit ? with_spread(*row.limit) : "-");
  for (const std::string& peer : peers) {
    const auto found = row.ratio.find(peer);
    line += fmt::format(" {:>20}", found == row.ratio.end() ? "-" : with_spread(found->second));
  }
  if (wire)
    line += fmt::format(" {:>12} {:>9}", row.wire_bytes ? fmt::format("{:.0f}", *row.wire_bytes) : "-",
                        row.wire_fraction ? fmt::format("{:.3f}", *row.wire_fraction) : "-");
  return line + "\n";
}

std::string to_json(const std::vector<Row>& rows) {
  nlohmann::json all = nlohmann::json::array();
  for (const Row& row : rows) {
    nlohmann::json ratio = nlohmann::json::object();
    nlohmann::json spread = nlohmann::json::object();
    for (const auto& [peer, summary] : row.ratio) {
      ratio[peer] = summary.median;
      spread[peer] = spread_of(summary);
    }
    all.push_back({
        {"bytes", row.bytes},
        {"engine", row.engine},
        {"memory", row.memory},
        {"p50_us", row.p50_us},
        {"p99_us", row.p99_us},
        {"algbw_GBps", row.algbw},
        {"busbw_GBps", row.busbw},
        {"wrong", row.wrong},
        {"limit_fraction", row.limit ? nlohmann::json(row.limit->median) : nlohmann::json()},
        {"ratio", ratio},
        {"limit_spread", row.limit ? spread_of(*row.limit) : nlohmann::json()},
        {"ratio_spread", spread},
        {"cpu_s_per_GB", or_null(row.cpu_seconds_per_gb)},
        {"collective", to_string(row.collective)},
        {"nproc", row.nproc},
        {"dtype", to_string(row.dtype)},
        {"count", row.count},
        {"warm", row.warm},
        {"wire_bytes_per_host", or_null(row.wire_bytes)},
        {"wire_of_least", or_null(row.wire_fraction)},
    });
  }
  return all.dump(2);
}

void write_json_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << '\n';
  file.close();
  if (!file) throw BenchError(fmt::format("--json {}: the file cannot be written", path));
}

}  // namespace lockstep::bench
