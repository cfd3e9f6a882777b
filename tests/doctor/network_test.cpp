// `lockstep doctor --hosts` on hosts that are network namespaces, with links and firewalls that the test disturbs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "doctor/doctor_process.h"
#include "support/hosts.h"

namespace lockstep::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string addresses_of(int hosts) {
  std::string text;
  for (int host = 0; host < hosts; ++host)
    text += fmt::format("{}{}:29400", host == 0 ? "" : ",", HostSet::address(host));
  return text;
}

// Runs the doctor on the first `started` of the hosts; `listed` are in --hosts.
class Doctors {
 public:
  Doctors(const HostSet& hosts, int started, int listed, StartOptions options = {}, const std::string& timeout = "20")
      : processes_(start(hosts, started, listed, std::move(options), timeout)) {
    finished_ = processes_.wait_all(in_seconds(80));
    for (int i = 0; i < started; ++i) {
      documents_.push_back(nlohmann::json::parse(processes_.output(i), nullptr, false));
      finished_ = finished_ && documents_.back().is_object();
    }
  }

  bool finished() const { return finished_; }
  const nlohmann::json& operator[](int host) const { return documents_[static_cast<std::size_t>(host)]; }
  const nlohmann::json& network(int host) const { return (*this)[host].at("network"); }
  int exit_code(int host) const { return processes_.exit_status(host)->code; }
  std::string report() const { return processes_.report(); }

 private:
  static ProcessSet start(const HostSet& hosts, int started, int listed, StartOptions options,
                          const std::string& timeout) {
    options.hosts = &hosts;
    options.environment.try_emplace("LOCKSTEP_SECRET", "1f8a6cd5e09b73424d0c9be27a6f5138");
    return start_program(
        started, {lockstep_program(), "doctor", "--json", "--hosts", addresses_of(listed), "--timeout", timeout},
        options);
  }
  ProcessSet processes_;
  std::vector<nlohmann::json> documents_;
  bool finished_ = false;
};

// A shell command on a host. False if it fails, because a command or kernel feature is missing.
bool run_on(const HostSet& hosts, int host, const std::string& command) {
  const std::string line = fmt::format("nsenter --net=/proc/{}/fd/{} sh -ec '{}'", ::getpid(), hosts.namespace_fd(host),
                                       "PATH=/usr/sbin:/usr/bin:/sbin:/bin; " + command);
  return std::system(line.c_str()) == 0;
}

// New connections to this host vanish; those that it makes itself work.
bool drop_new(const HostSet& hosts, int host, const std::string& condition = "") {
  return run_on(
      hosts, host,
      fmt::format("nft add table inet lockstep; nft add chain inet lockstep input \"{{ type filter hook input "
                  "priority 0; }}\"; nft add rule inet lockstep input iifname != lo {} tcp flags \\& "
                  "\\(syn \\| ack\\) == syn drop",
                  condition));
}

TEST(DoctorOfSeveralHosts, MeasuresEveryLinkAndTheErrorOfTheClocksHolds) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  const Doctors doctors(hosts, 3, 3);
  ASSERT_TRUE(doctors.finished()) << doctors.report();
  for (int host = 0; host < 3; ++host) {
    EXPECT_TRUE(trouble_with(doctors.network(host), "host").is_null()) << doctors.report();
    EXPECT_EQ(doctors[host].at("this_host"), host);
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) {
        if (from == to) continue;
        const auto link = link_of(doctors[host], from, to);
        ASSERT_FALSE(link.is_null()) << from << " to " << to << doctors.report();
        EXPECT_EQ(link.at("endpoint"), "answers");
        EXPECT_EQ(link.at("ranks"), "answers");
        EXPECT_GT(link.at("latency_seconds"), 1e-7);
        EXPECT_GT(link.at("bytes_per_second"), 1e6);
        // All hosts of the test have the same clock.
        const double error = link.at("clock_error_seconds");
        EXPECT_LE(std::abs(link.at("clock_offset_seconds").get<double>()), error + 1e-6);
        EXPECT_LT(error, 0.1);
      }
    }
  }
}

TEST(DoctorOfSeveralHosts, AHostThatDoesNotComeIsNamed) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  const Doctors doctors(hosts, 2, 3, {}, "3");
  // The third host has no process: start_program() spreads ranks over all hosts, so two hosts run one each.
  ASSERT_TRUE(doctors.finished()) << doctors.report();
  for (int host = 0; host < 2; ++host) {
    EXPECT_EQ(doctors.exit_code(host), 2);
    const auto row = row_of(doctors.network(host), "host 10.77.0.3:29400");
    ASSERT_FALSE(row.is_null()) << doctors.report();
    EXPECT_EQ(row.at("value"), "did not come (refused)");
    EXPECT_THAT(row.at("advice").get<std::string>(), HasSubstr("no process listens"));
    EXPECT_EQ(link_of(doctors[host], 0, 1).at("ranks"), "answers") << "the others are measured all the same";
  }
}

TEST(DoctorOfSeveralHosts, ACutLinkDropsPackets) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  const Status cut = hosts.set_firewall(1, HostSet::Firewall::drop);
  if (!cut.ok()) GTEST_SKIP() << cut.message();
  const Doctors doctors(hosts, 2, 2, {}, "4");
  ASSERT_TRUE(doctors.finished()) << doctors.report();
  for (int host = 0; host < 2; ++host) {
    EXPECT_EQ(doctors.exit_code(host), 2);
    const auto row = trouble_with(doctors.network(host), fmt::format("host 10.77.0.{}", 2 - host));
    ASSERT_FALSE(row.is_null()) << doctors.report();
    EXPECT_EQ(row.at("value"), "did not come (dropped)");
    EXPECT_THAT(row.at("advice").get<std::string>(), HasSubstr("a firewall drops them"));
  }
}

TEST(DoctorOfSeveralHosts, AFirewallThatRejectsIsToldFromOneThatDrops) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  const Status reject = hosts.set_firewall(1, HostSet::Firewall::reject);
  if (!reject.ok()) GTEST_SKIP() << reject.message();
  const Doctors doctors(hosts, 2, 2, {}, "4");
  ASSERT_TRUE(doctors.finished()) << doctors.report();
  const auto row = trouble_with(doctors.network(0), "host 10.77.0.2");
  ASSERT_FALSE(row.is_null()) << doctors.report();
  EXPECT_EQ(row.at("value"), "did not come (refused)");
}

TEST(DoctorOfSeveralHosts, AOneWayFirewallIsReportedOnBothSides) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  if (!drop_new(hosts, 1)) GTEST_SKIP() << "nft(8) is missing, or the kernel lacks what it needs";
  const Doctors doctors(hosts, 2, 2, {}, "15");
  ASSERT_TRUE(doctors.finished()) << doctors.report();
  for (int host = 0; host < 2; ++host) {
    EXPECT_EQ(doctors.exit_code(host), 2);
    EXPECT_EQ(link_of(doctors[host], 0, 1).at("endpoint"), "dropped") << doctors.report();
    EXPECT_EQ(link_of(doctors[host], 0, 1).at("ranks"), "dropped");
    EXPECT_EQ(link_of(doctors[host], 1, 0).at("ranks"), "answers");
    const auto row = trouble_with(doctors.network(host), "link 10.77.0.1:29400 to 10.77.0.2:29400");
    ASSERT_FALSE(row.is_null()) << doctors.report();
    EXPECT_THAT(row.at("advice").get<std::string>(), HasSubstr("a firewall drops them"));
  }
}

TEST(DoctorOfSeveralHosts, AFirewallThatOpensOnlyThePortOfLaunchersIsFound) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  if (!drop_new(hosts, 1, "tcp dport != 29400")) GTEST_SKIP() << "nft(8) is missing, or the kernel lacks what it needs";
  const Doctors doctors(hosts, 2, 2);
  ASSERT_TRUE(doctors.finished()) << doctors.report();
  EXPECT_EQ(link_of(doctors[1], 0, 1).at("endpoint"), "answers") << doctors.report();
  EXPECT_EQ(link_of(doctors[1], 0, 1).at("ranks"), "dropped");
  const auto row = trouble_with(doctors.network(0), "link 10.77.0.1:29400 to 10.77.0.2:29400");
  ASSERT_FALSE(row.is_null()) << doctors.report();
  EXPECT_THAT(row.at("advice").get<std::string>(), HasSubstr("ip_local_port_range"));
}

TEST(DoctorOfSeveralHosts, ASlowLinkIsYellow) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  if (!run_on(hosts, 2, "tc qdisc add dev eth0 root tbf rate 40mbit burst 64k latency 100ms"))
    GTEST_SKIP() << "tc(8) is missing, or the kernel lacks sch_tbf";
  const Doctors doctors(hosts, 3, 3);
  ASSERT_TRUE(doctors.finished()) << doctors.report();
  const auto row = trouble_with(doctors.network(0), "link 10.77.0.3:29400 to 10.77.0.1:29400");
  ASSERT_FALSE(row.is_null()) << doctors.report();
  EXPECT_EQ(row.at("level"), "yellow");
  EXPECT_THAT(row.at("value").get<std::string>(), HasSubstr("slow: 0.0"));
  EXPECT_NEAR(link_of(doctors[0], 2, 0).at("bytes_per_second").get<double>() * 8, 40e6, 8e6) << doctors.report();
}

TEST(DoctorOfSeveralHosts, AWrongInterfaceIsFoundByThoseWhoCannotReachIt) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  if (!run_on(hosts, 1, "ip link add wrong0 type bridge; ip addr add 192.0.2.7/32 dev wrong0; ip link set wrong0 up"))
    GTEST_SKIP() << "the kernel has no bridges";
  const Doctors doctors(hosts, 2, 2, {.rank_variables = [](int rank) {
                          return rank == 1 ? Environment{{"LOCKSTEP_INTERFACE", "wrong0"}} : Environment{};
                        }});
  ASSERT_TRUE(doctors.finished()) << doctors.report();
  const auto link = link_of(doctors[1], 0, 1);
  EXPECT_EQ(link.at("endpoint"), "answers") << doctors.report();
  EXPECT_THAT(link.at("ranks").get<std::string>(), AnyOf("unreachable", "dropped"));
  EXPECT_THAT(link.at("ranks_address").get<std::string>(), HasSubstr("192.0.2.7:"));
  const auto row = trouble_with(doctors.network(0), "link 10.77.0.1:29400 to 10.77.0.2:29400");
  ASSERT_FALSE(row.is_null()) << doctors.report();
  EXPECT_THAT(row.at("advice").get<std::string>(), HasSubstr("LOCKSTEP_INTERFACE"));
}

TEST(DoctorOfSeveralHosts, AnotherSecretIsFound) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  const Doctors doctors(
      hosts, 2, 2,
      {.rank_variables =
           [](int rank) {
             return Environment{{"LOCKSTEP_SECRET", fmt::format("0123456789abcdef0123456789abcdef of host {}", rank)}};
           }},
      "5");
  ASSERT_TRUE(doctors.finished()) << doctors.report();
  EXPECT_EQ(doctors.exit_code(0), 2);
  EXPECT_EQ(row_of(doctors.network(0), "host 10.77.0.2:29400").at("value"), "did not come (no secret)")
      << doctors.report();
}

}  // namespace
}  // namespace lockstep::testing
