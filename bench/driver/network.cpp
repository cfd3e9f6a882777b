#include "bench/driver/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "bench/driver/process.h"

namespace lockstep::bench {
namespace {

std::vector<std::string> shape_command(const std::string& space, const std::string& device, const std::string& rate) {
  return {"tc",  "-n",   space, "qdisc", "add",  "dev",     device, "root",
          "tbf", "rate", rate,  "burst", "256k", "latency", "50ms"};
}

// A command of build() that this machine may refuse, and what it needs.
struct Attempt {
  std::vector<std::string> command;
  const char* needs;
};

std::string why_it_fails(const std::vector<Attempt>& attempts) {
  for (const auto& [command, needs] : attempts) {
    const CommandResult result = run_command(command);
    if (result.exit_code != 0) return fmt::format("{}: '{}' failed: {}", needs, fmt::join(command, " "), result.output);
  }
  return "";
}

}  // namespace

std::string why_no_virtual_network(bool shaped) {
  if (find_program("ip").empty() || (shaped && find_program("tc").empty()))
    return "virtual hosts need the programs ip and tc in PATH: install iproute2";
  const std::string space = fmt::format("lockstep-{}-probe", ::getpid());
  std::vector<Attempt> attempts = {
      {{"ip", "netns", "add", space}, "a network namespace needs CAP_SYS_ADMIN (root) and a writable /run/netns"},
      {{"ip", "netns", "exec", space, "true"},
       "running a program in a network namespace needs CAP_SYS_ADMIN (root) to remount /sys, and a root directory "
       "that is a mount point, which that of a plain chroot is not"},
      {{"ip", "-n", space, "link", "add", "bridge", "type", "bridge"},
       "a bridge between virtual hosts needs CAP_NET_ADMIN (root) and the kernel module bridge"},
      {{"ip", "-n", space, "link", "add", VirtualNetwork::kDevice, "type", "veth", "peer", "name", "port0"},
       "a link between virtual hosts needs CAP_NET_ADMIN (root) and the kernel module veth"}};
  if (shaped) {
    attempts.push_back({shape_command(space, "port0", "1gbit"),
                        "a link's rate needs CAP_NET_ADMIN (root) and the kernel module sch_tbf"});
  }
  const std::string reason = why_it_fails(attempts);
  run_command({"ip", "netns", "delete", space});
  return reason;
}

VirtualNetwork::VirtualNetwork(int hosts, const std::string& rate)
    : switch_(fmt::format("lockstep-{}-switch", ::getpid())) {
  for (int host = 0; host < hosts; ++host) addresses_.push_back(fmt::format("10.77.0.{}", host + 1));
  try {
    build(rate);
  } catch (...) {
    remove();
    throw;
  }
}

VirtualNetwork::~VirtualNetwork() { remove(); }

std::string VirtualNetwork::name_of(int host) const { return fmt::format("lockstep-{}-host{}", ::getpid(), host); }

void VirtualNetwork::build(const std::string& rate) {
  if (const std::string reason = why_no_virtual_network(!rate.empty()); !reason.empty())
    throw BenchError("--hosts cannot work here: " + reason);
  const auto add_space = [this](const std::string& name) {
    run_or_throw({"ip", "netns", "add", name});
    created_.push_back(name);
    run_or_throw({"ip", "-n", name, "link", "set", "lo", "up"});
  };
  add_space(switch_);
  run_or_throw({"ip", "-n", switch_, "link", "add", "bridge", "type", "bridge"});
  run_or_throw({"ip", "-n", switch_, "link", "set", "bridge", "up"});
  for (int host = 0; host < static_cast<int>(addresses_.size()); ++host) {
    const std::string space = name_of(host);
    const std::string port = fmt::format("port{}", host);
    check_interrupted();
    add_space(space);
    run_or_throw({"ip", "-n", switch_, "link", "add", port, "type", "veth", "peer", "name", kDevice, "netns", space});
    run_or_throw({"ip", "-n", switch_, "link", "set", port, "master", "bridge", "up"});
    run_or_throw(
        {"ip", "-n", space, "address", "add", addresses_[static_cast<std::size_t>(host)] + "/24", "dev", kDevice});
    run_or_throw({"ip", "-n", space, "link", "set", kDevice, "up"});
    if (!rate.empty()) {
      run_or_throw(shape_command(space, kDevice, rate));
      run_or_throw(shape_command(switch_, port, rate));
    }
  }
}

void VirtualNetwork::remove() {
  // Removing a namespace removes its devices.
  for (const std::string& name : created_) run_command({"ip", "netns", "delete", name});
  created_.clear();
}

std::vector<std::string> VirtualNetwork::command_prefix(int host) const {
  return {"ip", "netns", "exec", name_of(host)};
}

std::vector<std::uint64_t> VirtualNetwork::bytes_sent() const {
  std::vector<std::uint64_t> sent;
  for (int host = 0; host < static_cast<int>(addresses_.size()); ++host) {
    const std::string text = run_or_throw({"ip", "-n", name_of(host), "-s", "-j", "link", "show", "dev", kDevice});
    const auto links = nlohmann::json::parse(text, nullptr, false);
    if (links.is_discarded() || links.empty()) throw BenchError("cannot parse the output of 'ip -s -j link': " + text);
    sent.push_back(links[0].at("stats64").at("tx").at("bytes").get<std::uint64_t>());
  }
  return sent;
}

}  // namespace lockstep::bench
