#include "doctor/network/judge_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::doctor {
namespace {

constexpr double kSlowLink = 0.4;             // of the fastest link
constexpr double kSlowBytesPerSecond = 50e6;  // no network for training is slower
constexpr double kSlowSeconds = 1e-3;
constexpr double kClockSeconds = 0.1;

std::string rate_text(double bytes_per_second) { return fmt::format("{:.3g} Gbit/s", bytes_per_second * 8e-9); }
std::string time_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.0f} us", seconds * 1e6) : fmt::format("{:.3g} ms", seconds * 1e3);
}

class Judge {
 public:
  Judge(const std::vector<HostPort>& hosts, const std::map<int, HostReport>& reports)
      : hosts_(hosts), reports_(reports) {
    for (const auto& [index, report] : reports_) {
      for (const LinkReport& link : report.links) fastest_ = std::max(fastest_, link.bytes_per_second);
    }
  }

  std::vector<Finding> findings() {
    for (int host = 0; host < static_cast<int>(hosts_.size()); ++host) {
      if (reports_.count(host) == 0) missing(host);
    }
    for (const auto& [index, report] : reports_) {
      for (const LinkReport& link : report.links) {
        if (known(link.to)) judge(link);
      }
    }
    if (findings_.empty()) {
      findings_.push_back(green("links", fmt::format("all {} hosts reach each other", hosts_.size())));
    }
    return std::move(findings_);
  }

 private:
  bool known(int host) const { return host >= 0 && host < static_cast<int>(hosts_.size()) && reports_.count(host) > 0; }
  std::string name(int host) const { return to_string(hosts_[static_cast<std::size_t>(host)]); }

  // How it responded to the hosts that did come.
  void missing(int host) {
    Reach reach = Reach::unknown;
    for (const auto& [index, report] : reports_) {
      for (const LinkReport& link : report.links) {
        if (link.to == host && link.endpoint != Reach::unknown) reach = link.endpoint;
      }
    }
    findings_.push_back(red("host " + name(host), fmt::format("did not come ({})", to_string(reach)),
                            reach == Reach::answered
                                ? "its `lockstep doctor` ended before it reported: look at its output"
                                : advice_for(reach, name(host), false)));
  }

  void judge(const LinkReport& link) {
    const std::string what = fmt::format("link {} to {}", name(link.from), name(link.to));
    if (link.endpoint != Reach::answered) {
      findings_.push_back(red(what, fmt::format("port of launchers: {}", to_string(link.endpoint)),
                              advice_for(link.endpoint, name(link.to), true)));
    }
    if (link.ranks != Reach::answered) {
      std::string advice = advice_for(link.ranks, link.ranks_address, true);
      if (link.endpoint == Reach::answered) {
        advice +=
            " (the port in --hosts is open, but ranks use ports that the kernel chooses, "
            "net.ipv4.ip_local_port_range, at the address that LOCKSTEP_INTERFACE selects)";
      }
      findings_.push_back(
          red(what, fmt::format("address of ranks, {}: {}", link.ranks_address, to_string(link.ranks)), advice));
      return;
    }
    judge_speed(link, what);
    judge_clock(link);
  }

  void judge_speed(const LinkReport& link, const std::string& what) {
    if (link.bytes_per_second >= 0 &&
        (link.bytes_per_second < kSlowBytesPerSecond || link.bytes_per_second < kSlowLink * fastest_)) {
      findings_.push_back(yellow(
          what,
          fmt::format("slow: {} (the fastest link has {})", rate_text(link.bytes_per_second), rate_text(fastest_)),
          "every all-reduce is as slow as the slowest link: look at the negotiated rate of its adapter (ethtool), its "
          "cable and switch port, limits (tc qdisc), and whether LOCKSTEP_INTERFACE names the fast network"));
    }
    if (link.latency_seconds > kSlowSeconds) {
      findings_.push_back(yellow(what, fmt::format("latency {}", time_text(link.latency_seconds)),
                                 "small all-reduces cost at least this much: are the hosts in one data centre, and is "
                                 "the network idle?"));
    }
  }

  void judge_clock(const LinkReport& link) {
    if (link.from > link.to && known(link.to)) return;  // once for two hosts
    if (std::abs(link.clock_offset_seconds) - link.clock_error_seconds < kClockSeconds) return;
    findings_.push_back(
        yellow("clock of " + name(link.to),
               fmt::format("{:+.3f} s beyond that of {} (within {})", link.clock_offset_seconds, name(link.from),
                           time_text(link.clock_error_seconds)),
               "log lines and timelines of different hosts will not fit together: run chrony or systemd-timesyncd"));
  }

  const std::vector<HostPort>& hosts_;
  const std::map<int, HostReport>& reports_;
  double fastest_ = 0;
  std::vector<Finding> findings_;
};

const LinkReport* find_link(const std::map<int, HostReport>& reports, int from, int to) {
  const auto report = reports.find(from);
  if (report == reports.end()) return nullptr;
  const auto& links = report->second.links;
  const auto link = std::find_if(links.begin(), links.end(), [to](const LinkReport& one) { return one.to == to; });
  return link == links.end() ? nullptr : &*link;
}

std::string cell(const LinkReport* link, bool same) {
  if (same) return "-";
  if (link == nullptr) return "?";
  if (link->ranks == Reach::answered && link->bytes_per_second >= 0)
    return fmt::format("{}, {}", time_text(link->latency_seconds), rate_text(link->bytes_per_second));
  return to_string(link->ranks == Reach::unknown ? link->endpoint : link->ranks);
}

}  // namespace

std::vector<Finding> judge_links(const std::vector<HostPort>& hosts, const std::map<int, HostReport>& reports) {
  return Judge(hosts, reports).findings();
}

std::string link_table(const std::vector<HostPort>& hosts, const std::map<int, HostReport>& reports) {
  std::string text = fmt::format("{:>24}", "from \\ to");
  const auto count = static_cast<int>(hosts.size());
  for (int to = 0; to < count; ++to) text += fmt::format("  {:>22}", to_string(hosts[static_cast<std::size_t>(to)]));
  for (int from = 0; from < count; ++from) {
    text += fmt::format("\n{:>24}", to_string(hosts[static_cast<std::size_t>(from)]));
    for (int to = 0; to < count; ++to) text += fmt::format("  {:>22}", cell(find_link(reports, from, to), from == to));
  }
  return text + "\n";
}

}  // namespace lockstep::doctor
