#include "elastic/participant.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "base/net/resolve.h"
#include "base/random.h"
#include "membership/roster.h"
#include "membership/witness.h"
#include "support/reserved_port.h"

namespace lockstep::elastic {
namespace {

using namespace std::chrono_literals;

// Forwards one connection after the other to another address; each waits for a while before anything is forwarded.
class SlowLink {
 public:
  SlowLink(const std::string& to, std::chrono::milliseconds delay)
      : to_(parse_host_port(to).value()), delay_(delay), address_("127.0.0.1:" + std::to_string(port_.port())) {
    listener_ = port_.listen();
    thread_ = std::thread([this] { run(); });
  }
  ~SlowLink() {
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(stop_.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
    thread_.join();
  }
  const std::string& address() const { return address_; }

 private:
  // Which of the two can be read; none after the timeout (-1: never). Nothing: stop.
  std::optional<std::vector<int>> readable(int one, int two, int timeout_ms) {
    std::array<pollfd, 3> all = {{{stop_.get(), POLLIN, 0}, {one, POLLIN, 0}, {two, POLLIN, 0}}};
    if (::poll(all.data(), all.size(), timeout_ms) < 0 || all[0].revents != 0) return std::nullopt;
    std::vector<int> result;
    if (all[1].revents != 0) result.push_back(one);
    if (all[2].revents != 0) result.push_back(two);
    return result;
  }
  void run() {
    while (readable(listener_.get(), -1, -1)) {
      const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.get() >= 0 && readable(-1, -1, static_cast<int>(delay_.count()))) forward(client.get());
    }
  }
  // Until a side closes its end.
  void forward(int client) {
    const auto connected = connect_to(resolve(to_.host, to_.port).value().front(), Deadline::after(10s));
    if (!connected.ok()) return;
    const int server = connected->get();
    std::array<char, 4096> bytes = {};
    while (const auto sides = readable(client, server, -1)) {
      for (const int side : *sides) {
        const ssize_t size = ::recv(side, bytes.data(), bytes.size(), 0);
        const int other = side == client ? server : client;
        if (size <= 0 || ::send(other, bytes.data(), static_cast<std::size_t>(size), MSG_NOSIGNAL) != size) return;
      }
    }
  }

  const HostPort to_;
  const std::chrono::milliseconds delay_;
  testing::ReservedPort port_;
  const std::string address_;
  const UniqueFd stop_{::eventfd(0, EFD_CLOEXEC)};
  UniqueFd listener_;
  std::thread thread_;
};

// As a host that still starts: after the few hundred milliseconds that a recovery may take, it has not answered.
TEST(Participant, TheFirstGenerationHasAWitnessThatIsSlowAtTheStart) {
  const auto witness = membership::Witness::open({.host = "127.0.0.1", .port = 0}).value();
  const SlowLink link(witness->address(), 500ms);
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("participant_" + random_hex(8));
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  {
    ParticipantOptions options;
    options.init.init_method = "file://" + (folder / "store").string() + "?rank=0&world_size=1";
    options.roster = folder / "roster";
    options.witness = link.address();
    Participant participant(options);
    ASSERT_TRUE(participant.next_generation(0));
    EXPECT_NE(membership::read_roster(options.roster).value().generation.witness, "");
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::elastic
