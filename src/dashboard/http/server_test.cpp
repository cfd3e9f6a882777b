// The server with honest, slow, hostile and vanished clients.
#include "dashboard/http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>

#include "base/net/resolve.h"

namespace lockstep::dashboard {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// States of `size` bytes that begin with "<tick since>".
class Numbers final : public ServedContent {
 public:
  explicit Numbers(std::size_t size, std::atomic<std::uint64_t>& samples) : size_(size), samples_(samples) {}
  void sample() override { samples_ = ++tick_; }
  std::uint64_t tick() const override { return tick_; }
  std::shared_ptr<const std::string> state(std::uint64_t since) override {
    std::string text = "<" + std::to_string(tick_) + " " + std::to_string(since) + ">";
    text.resize(std::max(size_, text.size()), 'x');
    return std::make_shared<const std::string>(text);
  }
  std::string metrics() override { return "lockstep_up 1\n"; }
  std::string_view page() const override { return "<!doctype html><p>page"; }
  std::string_view policy() const override { return "default-src 'none'"; }

 private:
  const std::size_t size_;
  std::atomic<std::uint64_t>& samples_;
  std::uint64_t tick_ = 0;
};

class DashboardServer : public ::testing::Test {
 protected:
  void start(const ServerLimits& limits, std::size_t state_bytes = 100) {
    auto loopback = resolve("127.0.0.1", 0);
    ASSERT_TRUE(loopback.ok());
    auto listener = listen_on(loopback->front(), 64);
    ASSERT_TRUE(listener.ok());
    address_ = *local_address(listener->get());
    auto server = HttpServer::start(*std::move(listener), std::make_unique<Numbers>(state_bytes, samples_), limits);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = *std::move(server);
  }

  static Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

  UniqueFd connect() const {
    auto fd = connect_to(address_, soon());
    return fd.ok() ? *std::move(fd) : UniqueFd();
  }
  static bool send(const UniqueFd& fd, std::string_view text) {
    return send_all(fd.get(), std::as_bytes(std::span(text)), soon()).ok();
  }
  // What arrives until `text` does, the connection ends (then `ended`) or 20 s have passed.
  static std::string read_until(const UniqueFd& fd, const std::string& text, bool* ended = nullptr) {
    std::string got;
    for (const Deadline deadline = soon(); !deadline.expired();) {
      if (!text.empty() && got.find(text) != std::string::npos) return got;
      if (!wait_ready(fd.get(), POLLIN, deadline).ok()) return got;
      char buffer[65536];
      const ssize_t size = ::recv(fd.get(), buffer, sizeof(buffer), 0);
      if (size <= 0) {
        if (ended != nullptr) *ended = true;
        return got;
      }
      got.append(buffer, static_cast<std::size_t>(size));
    }
    return got;
  }
  std::string get(const std::string& target, const std::string& headers = "Host: localhost\r\n") const {
    const UniqueFd fd = connect();
    if (!send(fd, "GET " + target + " HTTP/1.1\r\n" + headers + "\r\n")) return "not sent";
    return read_until(fd, "");
  }
  UniqueFd view() const {
    UniqueFd fd = connect();
    send(fd, "GET /events HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n");
    return fd;
  }

  SocketAddress address_;
  std::atomic<std::uint64_t> samples_{0};
  std::unique_ptr<HttpServer> server_;
};

constexpr ServerLimits kQuick{.request_time = std::chrono::milliseconds(300),
                              .write_time = std::chrono::milliseconds(300),
                              .period = std::chrono::milliseconds(20)};

TEST_F(DashboardServer, ServesPageStateAndMetrics) {
  start(kQuick);
  const std::string page = get("/");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 22\r\n"));
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'\r\n"));
  EXPECT_THAT(page, EndsWith("\r\n\r\n<!doctype html><p>page"));
  EXPECT_THAT(get("/metrics"), EndsWith("\r\n\r\nlockstep_up 1\n"));
  EXPECT_THAT(get("/state"), HasSubstr(" 0>x"));
  EXPECT_THAT(get("/other"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(get("/", "Host: evil.example\r\n"), StartsWith("HTTP/1.1 421 "));
  EXPECT_THAT(get("/", ""), StartsWith("HTTP/1.1 400 "));
}

TEST_F(DashboardServer, SendsAViewerEachStateWithWhatItHasSeen) {
  start(kQuick);
  const UniqueFd viewer = view();
  const std::string first = read_until(viewer, "\n\n");
  EXPECT_THAT(first, HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_THAT(first, HasSubstr("\r\n\r\ndata: <"));
  EXPECT_THAT(first, HasSubstr(" 0>"));
  const std::size_t begin = first.find("data: <") + 7;
  const std::string tick = first.substr(begin, first.find(' ', begin) - begin);
  EXPECT_THAT(read_until(viewer, " " + tick + ">"), HasSubstr("data: <"));
}

TEST_F(DashboardServer, EndsWithTheLastStateForEveryViewer) {
  start({.period = std::chrono::hours(1)});
  const UniqueFd viewer = view();
  ASSERT_THAT(read_until(viewer, "\n\n"), HasSubstr("data: <1 0>"));
  std::thread reader([&] {
    bool ended = false;
    EXPECT_THAT(read_until(viewer, "", &ended), HasSubstr("data: <2 1>"));
    EXPECT_TRUE(ended);
  });
  const auto begin = std::chrono::steady_clock::now();
  server_->finish(std::chrono::seconds(15));
  reader.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(DashboardServer, DoesNotWaitLongForAViewerThatDoesNotRead) {
  start({}, 50'000'000);
  const UniqueFd viewer = view();
  ASSERT_TRUE(wait_ready(viewer.get(), POLLIN, soon()).ok());
  const auto begin = std::chrono::steady_clock::now();
  server_->finish(std::chrono::milliseconds(200));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(DashboardServer, AnswersGarbageAndHugeHeadersWithAnErrorOrTheEnd) {
  start(kQuick);
  const std::string endless(100'000, 'a');
  for (const std::string& request :
       {std::string("\x16\x03\x01\x02\x00\x01\x00\x01", 8), std::string(2000, '\0'), std::string("GET\r\n\r\n"),
        std::string("GET / HTTP/9.9\r\n\r\n"), "GET /" + endless + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + endless + "\r\n\r\n", endless,
        std::string("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\nabc"),
        std::string("GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"),
        std::string("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nHost: local\x01host\r\n\r\n")}) {
    const UniqueFd fd = connect();
    send(fd, request);
    bool ended = false;
    const std::string answer = read_until(fd, "", &ended);
    EXPECT_TRUE(ended) << request.substr(0, 60);
    if (!answer.empty() && request.find("HTTP/1.1\r\nHost: localhost\r\nTransfer") == std::string::npos) {
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 4")) << request.substr(0, 60);
    }
  }
  EXPECT_THAT(get("/"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(DashboardServer, DropsClientsThatSendNothingOrLittle) {
  start(kQuick);
  const UniqueFd silent = connect(), slow = connect();
  ASSERT_TRUE(send(slow, "GET / HT"));
  bool silent_ended = false, slow_ended = false;
  read_until(silent, "", &silent_ended);
  read_until(slow, "", &slow_ended);
  EXPECT_TRUE(silent_ended);
  EXPECT_TRUE(slow_ended);
}

TEST_F(DashboardServer, DropsAViewerThatNeverReadsAndServesOthers) {
  start(kQuick, 1'000'000);
  const UniqueFd viewer = view();
  // The kernel buffers some states; then a write takes too long.
  while (samples_ < 60) {
    EXPECT_THAT(get("/metrics"), EndsWith("lockstep_up 1\n"));
    pollfd none{-1, 0, 0};
    ::poll(&none, 1, 20);
  }
  // A connection that is still served would never end.
  std::size_t received = 0;
  char buffer[65536];
  const Deadline deadline = soon();
  ssize_t size = 1;
  while (size > 0 && !deadline.expired()) {
    if (!wait_ready(viewer.get(), POLLIN, deadline).ok()) break;
    size = ::recv(viewer.get(), buffer, sizeof(buffer), 0);
    if (size > 0) received += static_cast<std::size_t>(size);
  }
  EXPECT_LE(size, 0);
  EXPECT_LT(received, 20'000'000U) << "what the kernel had buffered, not every state";
}

TEST_F(DashboardServer, ASlowViewerMissesStatesAndGetsTheNewest) {
  start({.write_time = std::chrono::seconds(20), .period = std::chrono::milliseconds(5)}, 8'000'000);
  const UniqueFd viewer = view();
  while (samples_ < 20) std::this_thread::yield();
  const std::string first = read_until(viewer, "\n\n");
  const std::string second = first.substr(first.find("\n\n") + 2) + read_until(viewer, "data: <");
  // It has seen one of the first states, and is sent a much later one.
  const std::size_t begin = second.find('<') + 1;
  EXPECT_GE(std::stoi(second.substr(begin)), 20) << second.substr(0, 40);
}

TEST_F(DashboardServer, SurvivesThousandsOfConnections) {
  start({.connections = 16, .request_time = std::chrono::milliseconds(100), .period = std::chrono::milliseconds(10)});
  const std::uint64_t before = samples_;
  for (int i = 0; i < 3000; ++i) {
    // Each vanishes at once, or after half a request; the kernel refuses some.
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    ASSERT_TRUE(fd.valid());
    static_cast<void>(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_.storage), address_.length));
    if (i % 3 == 0) static_cast<void>(::send(fd.get(), "GET /eve", 8, MSG_NOSIGNAL));
  }
  EXPECT_THAT(get("/"), StartsWith("HTTP/1.1 200 "));
  EXPECT_GT(samples_, before) << "sampling continues";
}

TEST_F(DashboardServer, LetsOthersWaitWhileAllConnectionsAreInUse) {
  start({.connections = 2, .request_time = std::chrono::milliseconds(200), .period = std::chrono::milliseconds(20)});
  const UniqueFd first = connect(), second = connect();
  EXPECT_THAT(get("/"), StartsWith("HTTP/1.1 200 ")) << "once the silent ones are dropped";
}

TEST_F(DashboardServer, ForgetsViewersThatVanish) {
  start({.connections = 4, .period = std::chrono::milliseconds(20)});
  for (int i = 0; i < 40; ++i) {
    const UniqueFd viewer = view();
    ASSERT_THAT(read_until(viewer, "data: "), HasSubstr("data: ")) << i;
  }
}

}  // namespace
}  // namespace lockstep::dashboard
