// lockstep run --dashboard: what it serves of a real job, and that viewers cannot disturb the job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/net/resolve.h"
#include "base/net/socket.h"
#include "launch/launcher.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// A job with a dashboard at a free port.
class DashboardJob {
 public:
  DashboardJob(std::vector<std::string> options, const std::vector<std::string>& rank_arguments)
      : launcher_(arguments(std::move(options), rank_arguments)) {
    const std::string mark = "dashboard: http://";
    if (!launcher_.wait_for_line(mark)) return;
    const std::string text = launcher_.err();
    const std::size_t begin = text.find(mark) + mark.size();
    const auto place = parse_host_port(text.substr(begin, text.find('/', begin) - begin));
    if (place.ok()) address_ = resolve(place->host, place->port)->front();
  }

  Launcher& launcher() { return launcher_; }
  UniqueFd request(const std::string& path) const {
    auto fd = connect_to(address_, in_seconds(10));
    if (!fd.ok()) return {};
    const std::string text = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (!send_all(fd->get(), std::as_bytes(std::span(text)), in_seconds(10)).ok()) return {};
    return *std::move(fd);
  }
  // The body of an answer, or of all that a viewer gets until the connection ends; empty without one.
  std::string get(const std::string& path) const {
    const UniqueFd fd = request(path);
    std::string answer;
    char buffer[65536];
    while (fd.valid() && wait_ready(fd.get(), POLLIN, in_seconds(60)).ok()) {
      const ssize_t size = ::recv(fd.get(), buffer, sizeof(buffer), 0);
      if (size <= 0) break;
      answer.append(buffer, static_cast<std::size_t>(size));
    }
    const std::size_t end = answer.find("\r\n\r\n");
    return end == std::string::npos ? "" : answer.substr(end + 4);
  }
  // The state once `condition` holds; after 40 s the last one.
  template <typename Condition>
  json state_when(const Condition& condition) const {
    json state;
    for (const Deadline deadline = in_seconds(40); !deadline.expired();) {
      state = json::parse(get("/state"), nullptr, false);
      if (!state.is_discarded() && condition(state)) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return state;
  }

 private:
  static std::vector<std::string> arguments(std::vector<std::string> options, const std::vector<std::string>& of_rank) {
    options.emplace_back("--dashboard=127.0.0.1:0");
    options.emplace_back(LOCKSTEP_DASHBOARD_RANK);
    options.insert(options.end(), of_rank.begin(), of_rank.end());
    return options;
  }
  Launcher launcher_;
  SocketAddress address_;
};

TEST(DashboardJob, ShowsRanksCurvesBucketsAndTheStraggler) {
  DashboardJob job({"--nproc-per-node", "4"}, {"step_ms=20", "late=2", "late_ms=60", "snapshots=10"});
  const json state = job.state_when([](const json& one) { return !one["straggler"].is_null(); });
  ASSERT_FALSE(state["straggler"].is_null()) << job.launcher().report() << state;
  EXPECT_EQ(state["straggler"]["rank"], 2);
  EXPECT_EQ(state["phases"][state["straggler"]["phase"].get<std::size_t>()], "data loading");
  EXPECT_NEAR(state["straggler"]["cost"].get<double>(), 60, 30);
  EXPECT_THAT(state["sentence"].get<std::string>(), HasSubstr("rank 2 holds it up (data loading)"));
  ASSERT_EQ(state["ranks"].size(), 4U);
  for (const json& rank : state["ranks"]) {
    EXPECT_EQ(rank["condition"], "running");
    EXPECT_GT(rank["step"], 5);
    EXPECT_EQ(rank["split"]["buckets"].size(), 8U);
    EXPECT_GT(rank["pid"], 0);
  }
  const json later = job.state_when([](const json& one) {
    const auto has = [&](const std::string& name) {
      return std::any_of(one["curves"].begin(), one["curves"].end(),
                         [&](const json& curve) { return curve["name"] == name && !curve["points"].empty(); });
    };
    const bool used = std::all_of(one["ranks"].begin(), one["ranks"].end(),
                                  [](const json& rank) { return !rank["usage"].is_null(); });
    return used && has("loss") && has("steps per second") && one["seconds_left"].is_number() && !one["events"].empty();
  });
  EXPECT_GT(later["ranks"][0]["usage"]["threads"], 0);
  EXPECT_GT(later["ranks"][0]["usage"]["memory"], 1'000'000);
  ASSERT_FALSE(later["events"].empty());
  EXPECT_EQ(later["events"][0]["kind"], "snapshot");
  const std::string metrics = job.get("/metrics");
  EXPECT_THAT(metrics, HasSubstr("lockstep_rank_up{name=\"rank 3\""));
  EXPECT_THAT(metrics, HasSubstr("lockstep_straggler_cost_seconds{rank=\"2\",phase=\"data loading\"}"));
  EXPECT_THAT(metrics, HasSubstr("lockstep_training_metric{metric=\"loss\"}"));
  job.launcher().kill(SIGINT);
  EXPECT_EQ(job.launcher().wait(), 130);
}

TEST(DashboardJob, ShowsAKilledRankTheRestartAndTheEnd) {
  DashboardJob job({"--nproc-per-node", "3", "--max-restarts", "1"},
                   {"steps=60", "step_ms=20", "kill=1", "kill_step=20"});
  std::string stream;
  std::thread viewer([&] { stream = job.get("/events"); });
  EXPECT_EQ(job.launcher().wait(), 0) << job.launcher().report();
  viewer.join();
  // Every update is a line of its own.
  std::vector<json> states;
  for (std::size_t at = stream.find("data: "); at != std::string::npos; at = stream.find("data: ", at + 1))
    states.push_back(json::parse(stream.substr(at + 6, stream.find('\n', at) - at - 6)));
  ASSERT_FALSE(states.empty());
  const json& last = states.back();
  EXPECT_EQ(last["sentence"], "All ranks have finished successfully");
  EXPECT_EQ(last["job"]["over"], true);
  EXPECT_EQ(last["ranks"][1]["starts"], 2);
  EXPECT_EQ(last["job"]["failures"], 1) << "the others were stopped";
  std::vector<std::string> texts;
  for (const json& state : states) {
    for (const json& event : state["events"])
      texts.push_back(event["kind"].get<std::string>() + ": " + event["text"].get<std::string>());
  }
  EXPECT_THAT(texts, ::testing::Contains(::testing::AllOf(HasSubstr("failure: rank 1"), HasSubstr("SIGKILL"))));
  EXPECT_THAT(texts, ::testing::Contains(HasSubstr("start: rank 1 started again, as pid ")));
}

TEST(DashboardJob, StatesForWhichRankAHangingJobWaits) {
  DashboardJob job({"--nproc-per-node", "3"}, {"step_ms=10", "hang=2", "hang_step=8"});
  const json state = job.state_when([](const json& one) { return one["level"] == "bad"; });
  EXPECT_THAT(state["sentence"].get<std::string>(), ::testing::MatchesRegex("Stalled for .* waits for rank 2"));
  EXPECT_EQ(state["ranks"][2]["phase"], "data loading");
  EXPECT_GT(state["ranks"][2]["phase_age"], 5);
  EXPECT_THAT(state["ranks"][0]["operation"].get<std::string>(), HasSubstr("all_reduce #"));
}

TEST(DashboardJob, ViewersThatNeverReadDoNotDelayItsEnd) {
  DashboardJob job({"--nproc-per-node", "2"}, {"steps=150", "step_ms=20"});
  std::vector<UniqueFd> viewers;
  for (int i = 0; i < 100; ++i) viewers.push_back(job.request(i % 2 == 0 ? "/events" : "/"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(job.launcher().wait(), 0) << job.launcher().report();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
}

TEST(DashboardJob, RanksDoNotInheritItsSockets) {
  DashboardJob job({"--nproc-per-node", "2", "--max-restarts", "1"}, {"step_ms=10", "kill=1", "kill_step=30"});
  const UniqueFd viewer = job.request("/events");
  const json state = job.state_when([](const json& one) {
    return one["ranks"].size() == 2 && one["ranks"][1]["starts"] == 2 && one["ranks"][1]["step"] > 3;
  });
  EXPECT_EQ(state["ranks"][1]["starts"], 2) << "started while the viewer was connected";
  job.launcher().kill(SIGKILL);
  // If a rank had inherited the connection, it would stay open as long as that rank runs.
  char buffer[65536];
  bool ended = false;
  for (const Deadline deadline = in_seconds(10); !ended && wait_ready(viewer.get(), POLLIN, deadline).ok();)
    ended = ::recv(viewer.get(), buffer, sizeof(buffer), 0) <= 0;
  EXPECT_TRUE(ended);
}

TEST(DashboardOption, RefusesPlacesThatOtherMachinesCanReach) {
  Launcher launcher({"--dashboard=0.0.0.0:8080", rank_program(), "sum"});
  EXPECT_EQ(launcher.wait(), 2);
  EXPECT_THAT(launcher.err(),
              HasSubstr("--dashboard is '0.0.0.0:8080', which other machines can reach, but the dashboard is "
                        "not encrypted: serve it at 127.0.0.1 and forward the port, for example with ssh -L "
                        "8080:127.0.0.1:8080"));
}

TEST(DashboardOption, RefusesAPortThatIsInUseAndPlacesThatAreNone) {
  auto taken = listen_on(resolve("127.0.0.1", 0)->front());
  ASSERT_TRUE(taken.ok());
  const std::string place = local_address(taken->get())->to_string();
  Launcher launcher({"--dashboard=" + place, rank_program(), "sum"});
  EXPECT_EQ(launcher.wait(), 2);
  EXPECT_THAT(launcher.err(), HasSubstr(place));
  Launcher other({"--dashboard=nonsense", rank_program(), "sum"});
  EXPECT_EQ(other.wait(), 2);
  EXPECT_THAT(other.err(), HasSubstr("--dashboard: "));
}

TEST(DashboardOption, WithoutAPlaceTheProgramFollows) {
  Launcher launcher({"--dashboard", rank_program(), "sum"});
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("lockstep run: dashboard: http://127.0.0.1:"));
  Launcher without({rank_program(), "sum"});
  EXPECT_EQ(without.wait(), 0);
  EXPECT_THAT(without.err(), Not(HasSubstr("dashboard")));
}

}  // namespace
}  // namespace lockstep::testing
