// One launcher among coordinators that the test plays itself, over loopback.
#include "launch/meeting/meeting_thread.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "membership/roster.h"
#include "store/read_now.h"
#include "support/reserved_port.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

// The store of another launcher, which is not the coordinator until publish() is called.
class OtherLauncher {
 public:
  explicit OtherLauncher(const std::string& id)
      : server_(TcpStoreServer::start({.host = "127.0.0.1", .port = 0}).value()),
        record_{.id = id, .host = "other", .pid = 1, .address = server_->address()} {
    set(kOwnerKey, id);
  }
  const NodeRecord& record() const { return record_; }
  HostPort endpoint() const { return parse_host_port(record_.address).value(); }

  void publish(JobState state) {
    state.coordinator = record_;
    state.official = true;
    set(kJobStateKey, format(state));
    set(kStampKey, record_.id + "/" + std::to_string(++published_) + " 1");
  }
  // What the node announced last; nothing: it is not here.
  std::optional<NodeState> announced(const std::string& id) {
    const auto bytes = read_now(*store_, kNodePrefix + id, Deadline::after(10s));
    if (!bytes.ok() || !*bytes) return std::nullopt;
    const auto state = parse_node_state(**bytes);
    return state.ok() ? std::optional(*state) : std::nullopt;
  }
  // Waits for what the node announces here: that it knows the round with that id.
  bool is_joined_by(const std::string& id, const std::string& round) {
    for (const Deadline deadline = Deadline::after(20s); !deadline.expired(); std::this_thread::sleep_for(5ms)) {
      const auto state = announced(id);
      if (state && state->accepted == round) return true;
    }
    return false;
  }
  // As a coordinator does with a launcher at an endpoint that does not know the job.
  static void redirect(const std::string& launcher, const std::string& coordinator) {
    const HostPort place = parse_host_port(launcher).value();
    const auto store = TcpStore::connect(place.host, place.port, {}, Deadline::after(10s)).value();
    EXPECT_TRUE(store->set(kMovedKey, coordinator, Deadline::after(10s)).ok());
  }

 private:
  void set(const std::string& key, const std::string& value) {
    EXPECT_TRUE(store_->set(key, value, Deadline::after(10s)).ok());
  }
  std::unique_ptr<TcpStoreServer> server_;
  const NodeRecord record_;
  int published_ = 0;
  std::shared_ptr<TcpStore> store_ =
      TcpStore::connect(endpoint().host, endpoint().port, {}, Deadline::after(10s)).value();
};

class MeetingThreads : public ::testing::Test {
 protected:
  MeetingThreads() {
    options_.job = {.run_id = "job", .min_nodes = 1, .max_nodes = 3};
    options_.self = {.id = "self", .host = "host", .pid = 1, .address = {}};
    options_.tick = 10ms;
    options_.silent_timeout = 3s;
    options_.linger = 0ms;
  }
  JobState job_state(int number, const std::vector<NodeRecord>& nodes) const {
    JobState state;
    state.job = options_.job;
    state.term = number + 1;
    state.round = {.number = number, .id = "r" + std::to_string(number), .master = "a:1", .nodes = nodes};
    state.round.base = number - 1;
    if (number > 0) state.round.base_id = "r" + std::to_string(number - 1);
    state.established = state.round;
    return state;
  }
  NodeRecord self(const StoreMeeting& meeting) const {
    NodeRecord record = options_.self;
    record.address = meeting.address();
    return record;
  }
  NodeRecord ended(const std::string& id) const {
    return {.id = id, .host = "host", .pid = 1, .address = "127.0.0.1:" + std::to_string(port_.port())};
  }

  const testing::ReservedPort port_;
  StoreMeetingOptions options_;
};

// Its round has three nodes; the two others are out of reach, or continued without it.
TEST_F(MeetingThreads, ACandidateThatKnowsARoundFindsTheCoordinatorAtALaterEndpoint) {
  auto first = std::make_unique<OtherLauncher>("first");
  OtherLauncher second("second");
  options_.endpoints = {{"127.0.0.1", 0}, second.endpoint()};  // it is at the first endpoint itself
  const auto meeting = StoreMeeting::open(options_).value();
  auto pending = std::async(std::launch::async, [&] { return meeting->next_round(Deadline::after(20s), nullptr); });
  first->publish(job_state(0, {first->record(), ended("x"), self(*meeting)}));
  OtherLauncher::redirect(meeting->address(), first->record().address);
  ASSERT_TRUE(first->is_joined_by("self", "r0"));
  ASSERT_TRUE(pending.get().ok());
  first.reset();  // now it is the first living node of the round, without a quorum
  second.publish(job_state(1, {second.record(), ended("x")}));
  EXPECT_TRUE(second.is_joined_by("self", "r1"));
}

// A launcher at the endpoint that is not the coordinator, such as one that was started again there.
TEST_F(MeetingThreads, ANewLauncherFindsTheCoordinatorThroughTheLauncherAtTheEndpoint) {
  OtherLauncher coordinator("coordinator");
  options_.endpoints = {{"127.0.0.1", 0}};
  const auto meeting = StoreMeeting::open(options_).value();
  coordinator.publish(job_state(0, {coordinator.record(), self(*meeting)}));
  OtherLauncher::redirect(meeting->address(), coordinator.record().address);
  ASSERT_TRUE(coordinator.is_joined_by("self", "r0"));
  options_.endpoints = {parse_host_port(meeting->address()).value()};
  options_.self.id = "new";
  const auto newcomer = StoreMeeting::open(options_).value();
  EXPECT_TRUE(coordinator.is_joined_by("new", "r0"));
}

TEST_F(MeetingThreads, ACandidateThatIsAtNoEndpointFindsTheCoordinatorAtOne) {
  auto first = std::make_unique<OtherLauncher>("first");
  OtherLauncher second("second");
  options_.endpoints = {first->endpoint(), second.endpoint()};
  const auto meeting = StoreMeeting::open(options_).value();
  first->publish(job_state(0, {first->record(), ended("x"), self(*meeting)}));
  ASSERT_TRUE(first->is_joined_by("self", "r0"));
  first.reset();
  second.publish(job_state(1, {second.record(), ended("x")}));
  EXPECT_TRUE(second.is_joined_by("self", "r1"));
}

TEST_F(MeetingThreads, ARoundThatTheRosterRefusesIsNotAccepted) {
  char name[] = "/tmp/lockstep_meeting_XXXXXX";
  const std::string folder = ::mkdtemp(name);
  options_.roster = folder + "/rounds";
  ASSERT_TRUE(membership::offer_roster(options_.roster, {.generation = {.number = 1, .id = "another"}}).ok());
  OtherLauncher coordinator("coordinator");
  options_.endpoints = {coordinator.endpoint()};
  {
    const auto meeting = StoreMeeting::open(options_).value();
    coordinator.publish(job_state(0, {coordinator.record(), self(*meeting)}));
    ASSERT_TRUE(coordinator.is_joined_by("self", ""));
    std::this_thread::sleep_for(200ms);  // many ticks
    EXPECT_EQ(coordinator.announced("self").value().accepted, "");
    EXPECT_EQ(membership::read_roster(options_.roster).value().generation.id, "another");
    coordinator.publish(job_state(1, {coordinator.record(), self(*meeting)}));
    EXPECT_TRUE(coordinator.is_joined_by("self", "r1"));
  }
  EXPECT_EQ(membership::read_roster(options_.roster).value().generation.id, "r1");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::launch
