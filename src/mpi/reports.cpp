#include "mpi/reports.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <vector>

#include "base/printable.h"

namespace lockstep::mpi {
namespace {

constexpr std::size_t kFields = 7;

bool read_number(std::string_view text, std::uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string format(const Report& report) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", report.issued, report.front, report.left ? 1 : 0, report.done,
                     printable(report.who), printable(report.text), printable(report.done_text));
}

Result<Report> parse_report(std::string_view text) {
  std::array<std::string_view, kFields> fields;
  for (std::size_t i = 0; i < kFields; ++i) {
    const std::size_t end = text.find('\n');
    const bool is_last = i + 1 == kFields;
    if ((end == std::string_view::npos) != is_last)
      return Status(StatusCode::protocol_error, "a report has seven lines");
    fields[i] = text.substr(0, end);
    text.remove_prefix(is_last ? text.size() : end + 1);
  }
  Report report;
  std::uint64_t left = 0;
  if (!read_number(fields[0], &report.issued) || !read_number(fields[1], &report.front) ||
      !read_number(fields[2], &left) || left > 1 || !read_number(fields[3], &report.done)) {
    return Status(StatusCode::protocol_error, "a report starts with two numbers, 0 or 1, and a number");
  }
  report.left = left == 1;
  report.who = printable(fields[4]);
  report.text = printable(fields[5]);
  report.done_text = printable(fields[6]);
  return report;
}

Status check_reports(const std::string& group, int rank, int size, const ChannelProgress& mine,
                     const std::map<int, Report>& others, bool expired, std::chrono::milliseconds waited) {
  const std::string operation = fmt::format("{}: operation #{}, {}", group, mine.front, mine.text);
  std::vector<std::string> missing;
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    const auto found = others.find(other);
    if (found == others.end()) {
      missing.push_back(fmt::format("rank {}", other));
      continue;
    }
    const Report& report = found->second;
    const std::string& theirs = report.done == mine.front ? report.done_text : report.text;
    if ((report.front == mine.front || report.done == mine.front) && theirs != mine.text) {
      return {StatusCode::mismatch,
              fmt::format("{} on rank {}, but {} called {}: all ranks must call the same operations in the same "
                          "order",
                          operation, rank, report.who, theirs)};
    }
    if (report.issued >= mine.front) continue;
    if (report.left) {
      return {StatusCode::peer_lost,
              fmt::format("{}: {} has left the group after operation #{}", operation, report.who, report.issued)};
    }
    missing.push_back(fmt::format("{}, whose last operation was #{}", report.who, report.issued));
  }
  if (!expired) return {};
  if (missing.empty()) {
    return {StatusCode::timed_out,
            fmt::format("{}: not complete after {}, although all ranks have called it: MPI is slow or "
                        "stuck, or a rank called another operation there",
                        operation, waited)};
  }
  return {StatusCode::timed_out,
          fmt::format("{}: not complete after {}; missing: {}", operation, waited, fmt::join(missing, "; "))};
}

}  // namespace lockstep::mpi
