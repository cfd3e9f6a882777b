#include "dashboard/http/request_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::dashboard {
namespace {

using ::testing::HasSubstr;

TEST(RequestCheck, AnswersRequestsToLoopbackNamesWithAnyPort) {
  for (const char* host :
       {"localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:29480", "127.1.2.3:1", "[::1]", "[::1]:9"})
    EXPECT_TRUE(is_loopback_host(host)) << host;
}

TEST(RequestCheck, RefusesNamesThatMayPointToThisHost) {
  for (const char* host : {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1:x",
                           "127.0.0.1:", "127.0.0.1:99999", "127.0.0", "127.0.0.999", "127.0.0.1.", "10.0.0.1",
                           "[::1]x", "[::2]", "::1", "localhost:80:80", "127..0.1"})
    EXPECT_FALSE(is_loopback_host(host)) << host;
  EXPECT_EQ(check_request({.method = "GET", .target = "/", .host = "evil.example:29480"}).status, 421U);
  EXPECT_EQ(check_request({.method = "GET", .target = "/"}).status, 400U);
}

TEST(RequestCheck, AnswersAtFourPaths) {
  const auto route = [](std::string_view target) {
    return check_request({.method = "GET", .target = target, .host = "localhost"}).route;
  };
  EXPECT_EQ(route("/"), Route::page);
  EXPECT_EQ(route("/?x=1"), Route::page);
  EXPECT_EQ(route("/events"), Route::events);
  EXPECT_EQ(route("/state"), Route::state);
  EXPECT_EQ(route("/metrics"), Route::metrics);
  for (const char* target : {"", "//", "/../etc/passwd", "/metrics/", "http://localhost/", "*"}) {
    const auto decision = check_request({.method = "GET", .target = target, .host = "localhost"});
    EXPECT_EQ(decision.status, 404U) << target;
    EXPECT_EQ(decision.route, Route::none);
  }
}

TEST(RequestCheck, OnlyReads) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "get", ""})
    EXPECT_EQ(check_request({.method = method, .target = "/state", .host = "localhost"}).status, 405U) << method;
  EXPECT_TRUE(check_request({.method = "HEAD", .target = "/", .host = "localhost"}).head_only);
}

TEST(RequestCheck, GivesOtherSitesNothing) {
  const auto status = [](std::string_view target, std::string_view site) {
    return check_request({.method = "GET", .target = target, .host = "localhost", .fetch_site = site}).status;
  };
  EXPECT_EQ(status("/events", "cross-site"), 403U);
  EXPECT_EQ(status("/state", "same-site"), 403U);
  EXPECT_EQ(status("/state", "same-origin"), 200U);
  EXPECT_EQ(status("/state", "none"), 200U);
  EXPECT_EQ(status("/", "cross-site"), 200U) << "a link to the page";
}

TEST(RequestCheck, EveryAnswerHasThePolicyAndEndsTheConnection) {
  const std::string head = answer_head(404, "text/plain", 12, "default-src 'none'");
  EXPECT_THAT(head, ::testing::StartsWith("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(head, HasSubstr("\r\nContent-Length: 12\r\n"));
  EXPECT_THAT(head, HasSubstr("\r\nContent-Security-Policy: default-src 'none'\r\n"));
  EXPECT_THAT(head, ::testing::EndsWith("\r\nConnection: close\r\n\r\n"));
  EXPECT_THAT(answer_head(200, "", 0, "x"), HasSubstr("text/event-stream"));
}

}  // namespace
}  // namespace lockstep::dashboard
