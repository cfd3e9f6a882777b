#include "bench/driver/network.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "bench/driver/process.h"

namespace lockstep::bench {
namespace {

void shape(const std::string& space, const std::string& device, const std::string& rate) {
  run_or_throw({"tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "256k",
                "latency", "50ms"});
}

}  // namespace

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
  if (::geteuid() != 0) throw BenchError("--hosts makes network namespaces, which needs root");
  if (find_program("ip").empty() || find_program("tc").empty())
    throw BenchError("--hosts needs the programs ip and tc: install iproute2");
  const auto add_space = [this](const std::string& name) {
    run_or_throw({"ip", "netns", "add", name});
    made_.push_back(name);
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
      shape(space, kDevice, rate);
      shape(switch_, port, rate);
    }
  }
}

void VirtualNetwork::remove() {
  // With the namespaces go their devices.
  for (const std::string& name : made_) run_command({"ip", "netns", "delete", name});
  made_.clear();
}

std::vector<std::string> VirtualNetwork::command_prefix(int host) const {
  return {"ip", "netns", "exec", name_of(host)};
}

std::vector<std::uint64_t> VirtualNetwork::bytes_sent() const {
  std::vector<std::uint64_t> sent;
  for (int host = 0; host < static_cast<int>(addresses_.size()); ++host) {
    const std::string text = run_or_throw({"ip", "-n", name_of(host), "-s", "-j", "link", "show", "dev", kDevice});
    const auto links = nlohmann::json::parse(text, nullptr, false);
    if (links.is_discarded() || links.empty()) throw BenchError("cannot read what 'ip -s -j link' says: " + text);
    sent.push_back(links[0].at("stats64").at("tx").at("bytes").get<std::uint64_t>());
  }
  return sent;
}

}  // namespace lockstep::bench
