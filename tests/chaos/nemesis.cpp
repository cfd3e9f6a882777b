#include "chaos/nemesis.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/net/socket.h"
#include "support/control_group.h"

namespace lockstep::testing {
namespace {

void wait(int time_ms) { std::this_thread::sleep_for(std::chrono::milliseconds(time_ms)); }

// Every place in the product that is passed in a recovery, in a step, or by a launcher whose rank has ended.
constexpr std::array kFailpoints = {
    "roster.offer",  "roster.accepted", "recovery.registered", "recovery.decided",  "recovery.answered",
    "group.forming", "group.formed",    "state.transfer",      "state.transferred", "step.making",
    "step.made",     "commit.begin",    "launcher.rank_ended", "launcher.attested"};

}  // namespace

std::string Nemesis::disturb() {
  using Fault = std::string (Nemesis::*)();
  constexpr std::array<Fault, 13> kFaults = {
      &Nemesis::kill_rank,     &Nemesis::stop_rank,     &Nemesis::cut_link,      &Nemesis::lose_packets,
      &Nemesis::stop_launcher, &Nemesis::kill_twice,    &Nemesis::freeze_host,   &Nemesis::starve,
      &Nemesis::fill_disk,     &Nemesis::hit_failpoint, &Nemesis::kill_launcher, &Nemesis::write_protect_disk,
      &Nemesis::lose_power};
  const int which = any(static_cast<int>(kFaults.size()) + 5);
  switch (which) {
    case 0: return with_firewall(HostSet::Firewall::reject, "answers all packets with RST");
    case 1: return with_firewall(HostSet::Firewall::drop, "gets no packets");
    case 2: return kill_rank();
    case 3:
    case 4: return hit_failpoint();
    default: return (this->*kFaults[static_cast<std::size_t>(which - 5)])();
  }
}

std::optional<pid_t> Nemesis::victim(std::size_t at_least) {
  const std::vector<pid_t> ranks = job_.ranks();
  if (ranks.size() < at_least) return std::nullopt;
  return ranks[static_cast<std::size_t>(any(static_cast<int>(ranks.size())))];
}

// Shorter than the peer timeout, or long enough for the others to continue without the victim.
int Nemesis::short_or_long(int long_ms) { return any(2) == 0 ? 50 + any(400) : long_ms + any(long_ms); }

std::string Nemesis::kill_rank() {
  const auto pid = victim(2);
  if (!pid) return "nothing: too few ranks run";
  ::kill(*pid, SIGKILL);
  return fmt::format("kill -9 of rank process {}", *pid);
}

std::string Nemesis::stop_rank() {
  const auto pid = victim(1);
  if (!pid) return "nothing: no rank runs";
  const int time_ms = short_or_long(4000);
  ::kill(*pid, SIGSTOP);
  wait(time_ms);
  ::kill(*pid, SIGCONT);
  return fmt::format("stop of rank process {} for {} ms", *pid, time_ms);
}

std::string Nemesis::cut_link() {
  const int host = any(hosts_.size());
  const int time_ms = short_or_long(4000);
  EXPECT_TRUE(hosts_.cut_link(host).ok());
  wait(time_ms);
  EXPECT_TRUE(hosts_.restore_link(host).ok());
  return fmt::format("link of host {} cut for {} ms", host, time_ms);
}

std::string Nemesis::with_firewall(HostSet::Firewall firewall, const char* what) {
  const int host = any(hosts_.size());
  const int time_ms = short_or_long(3000);
  const Status set = hosts_.set_firewall(host, firewall);
  if (!set.ok()) return "nothing: " + set.message();
  wait(time_ms);
  EXPECT_TRUE(hosts_.set_firewall(host, HostSet::Firewall::open).ok());
  return fmt::format("host {} {} for {} ms", host, what, time_ms);
}

std::string Nemesis::lose_packets() {
  const int host = any(hosts_.size());
  const int percent = 1 + any(10);
  const int time_ms = 1000 + any(5000);
  const Status set = hosts_.set_firewall(host, HostSet::Firewall::lose, percent);
  if (!set.ok()) return "nothing: " + set.message();
  // Connections that exist often survive a loss; those that a recovery makes meet it anew.
  const std::string killed = any(2) == 0 ? kill_rank() : "no kill";
  wait(time_ms);
  EXPECT_TRUE(hosts_.set_firewall(host, HostSet::Firewall::open).ok());
  return fmt::format("host {} loses {} % of its packets for {} ms, with {}", host, percent, time_ms, killed);
}

std::string Nemesis::stop_launcher() {
  const int host = any(hosts_.size());
  const int time_ms = 500 + any(4000);
  job_.signal_node(host, SIGSTOP);
  wait(time_ms);
  job_.signal_node(host, SIGCONT);
  return fmt::format("stop of the launcher of host {} for {} ms", host, time_ms);
}

std::string Nemesis::kill_twice() {
  const std::vector<pid_t> ranks = job_.ranks();
  if (ranks.size() < 4) return "nothing: too few ranks run";
  ::kill(ranks[0], SIGKILL);
  wait(any(400));  // the recovery has begun
  ::kill(ranks[1], SIGKILL);
  return fmt::format("kill -9 of rank processes {} and {}, shortly after each other", ranks[0], ranks[1]);
}

std::string Nemesis::kill_launcher() {
  const int host = any(hosts_.size());
  job_.signal_node(host, SIGKILL);
  const int time_ms = any(3000);
  wait(time_ms);
  job_.start_node(host);
  return fmt::format("kill -9 of the launcher of host {}, and a new one after {} ms", host, time_ms);
}

// Nothing is left to attest anything, and nothing answers. The host starts again with an empty runtime folder.
std::string Nemesis::lose_power() {
  const int host = any(hosts_.size());
  EXPECT_TRUE(hosts_.cut_link(host).ok());
  for (const pid_t pid : job_.processes(host)) ::kill(pid, SIGKILL);
  const int time_ms = short_or_long(5000);
  wait(time_ms);
  if (const std::string folder = job_.runtime_folder(host); !folder.empty()) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) std::filesystem::remove_all(entry.path());
  }
  EXPECT_TRUE(hosts_.restore_link(host).ok());
  job_.start_node(host);
  return fmt::format("host {} without power for {} ms", host, time_ms);
}

std::string Nemesis::freeze_host() {
  const int host = any(hosts_.size());
  const int time_ms = short_or_long(3000);
  auto group = ControlGroup::create(ControlGroup::Kind::freezer);
  if (!group.ok()) return "nothing: " + group.status().message();
  group->add(job_.processes(host));
  const Status frozen = group->freeze();
  if (!frozen.ok()) return "nothing: " + frozen.message();
  wait(time_ms);
  EXPECT_TRUE(group->thaw().ok());
  return fmt::format("all processes of host {} frozen for {} ms", host, time_ms);
}

std::string Nemesis::starve() {
  const auto pid = victim(1);
  if (!pid) return "nothing: no rank runs";
  const int time_ms = 1000 + any(4000);
  auto group = ControlGroup::create(ControlGroup::Kind::cpu);
  if (!group.ok()) return "nothing: " + group.status().message();
  group->add({*pid});
  const Status starved = group->starve();
  if (!starved.ok()) return "nothing: " + starved.message();
  wait(time_ms);
  return fmt::format("rank process {} gets 1 % of a processor for {} ms", *pid, time_ms);
}

std::string Nemesis::fill_disk() {
  const int host = any(hosts_.size());
  const std::string folder = job_.runtime_folder(host);
  if (folder.empty()) return "nothing: the hosts share a disk";
  const std::string filler = folder + "/filler";
  {
    std::ofstream file(filler);
    const std::string block(4096, 'x');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) continue;
  }
  // In a recovery, the ranks of this host cannot accept the generation.
  const std::string killed = kill_rank();
  const int time_ms = 500 + any(3000);
  wait(time_ms);
  std::filesystem::remove(filler);
  return fmt::format("disk of host {} full for {} ms, and {}", host, time_ms, killed);
}

std::string Nemesis::write_protect_disk() {
  const int host = any(hosts_.size());
  const std::string folder = job_.runtime_folder(host);
  if (folder.empty()) return "nothing: the hosts share a disk";
  if (::mount(nullptr, folder.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
    return fmt::format("nothing: the disk of host {} cannot be made read-only now: {}", host, errno_text(errno));
  }
  const std::string killed = kill_rank();
  const int time_ms = 500 + any(3000);
  wait(time_ms);
  EXPECT_EQ(::mount(nullptr, folder.c_str(), nullptr, MS_REMOUNT, nullptr), 0);
  return fmt::format("disk of host {} read-only for {} ms, and {}", host, time_ms, killed);
}

std::string Nemesis::hit_failpoint() {
  constexpr std::array kActions = {"kill", "stop", "delay"};
  const std::string name = kFailpoints[static_cast<std::size_t>(any(static_cast<int>(kFailpoints.size())))];
  const std::string action = kActions[static_cast<std::size_t>(any(static_cast<int>(kActions.size())))];
  const std::string armed = fmt::format("{}/{}.{}", job_.failpoint_folder(), name, action);
  std::ofstream(armed).put('\n');
  const std::string killed = kill_rank();
  const Deadline deadline = in_seconds(3);
  while (std::filesystem::exists(armed) && !deadline.expired()) wait(5);
  const bool hit = !std::filesystem::remove(armed);
  if (action == "stop") {
    wait(short_or_long(3000));
    job_.continue_stopped();
  }
  // It may have been a launcher, which removes the file before it ends.
  const auto all_run = [this] {
    for (int host = 0; host < hosts_.size(); ++host) {
      if (!job_.node_runs(host)) return false;
    }
    return true;
  };
  const bool ends_launcher = hit && action == "kill" && name.starts_with("launcher.");
  for (const Deadline ended = in_seconds(5); ends_launcher && all_run() && !ended.expired();) wait(5);
  for (int host = 0; host < hosts_.size(); ++host) {
    if (!job_.node_runs(host)) job_.start_node(host);
  }
  return fmt::format("{} at failpoint {} ({}), after {}", action, name, hit ? "hit" : "not reached", killed);
}

}  // namespace lockstep::testing
