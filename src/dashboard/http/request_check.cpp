#include "dashboard/http/request_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::dashboard {
namespace {

RequestDecision refuse(unsigned status, std::string_view reason) { return {.status = status, .reason = reason}; }

bool is_number(std::string_view text, int most) {
  if (text.empty() || text.size() > 5 || text.find_first_not_of("0123456789") != std::string_view::npos) return false;
  int value = 0;
  for (const char digit : text) value = 10 * value + (digit - '0');
  return value <= most;
}

// "127.0.0.1": four numbers.
bool is_loopback_ipv4(std::string_view host) {
  if (!host.starts_with("127.")) return false;
  int parts = 0;
  while (true) {
    const std::size_t dot = std::min(host.find('.'), host.size());
    if (!is_number(host.substr(0, dot), 255)) return false;
    ++parts;
    if (dot == host.size()) return parts == 4;
    host.remove_prefix(dot + 1);
  }
}

bool is_localhost(std::string_view host) {
  constexpr std::string_view kName = "localhost";
  return std::equal(host.begin(), host.end(), kName.begin(), kName.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

std::string_view name_of(unsigned status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 421: return "Misdirected Request";
    case 431: return "Request Header Fields Too Large";
    default: return "Error";
  }
}

}  // namespace

bool is_loopback_host(std::string_view host) {
  constexpr std::string_view kIpv6 = "[::1]";
  const std::size_t colon = host.starts_with(kIpv6) ? host.find(':', kIpv6.size()) : host.find(':');
  if (colon != std::string_view::npos) {
    if (!is_number(host.substr(colon + 1), 65535)) return false;
    host = host.substr(0, colon);
  }
  return host == kIpv6 || is_localhost(host) || is_loopback_ipv4(host);
}

RequestDecision check_request(const RequestHead& head) {
  if (head.host.empty()) return refuse(400, "The request has no Host header.");
  if (!is_loopback_host(head.host))
    return refuse(421, "The dashboard answers only requests to localhost, 127.0.0.1 or [::1].");
  if (head.method != "GET" && head.method != "HEAD") return refuse(405, "The dashboard only answers GET and HEAD.");
  const std::string_view path = head.target.substr(0, head.target.find('?'));
  RequestDecision decision{.head_only = head.method == "HEAD"};
  if (path == "/") {
    decision.route = Route::page;
    return decision;
  }
  if (head.fetch_site == "cross-site" || head.fetch_site == "same-site")
    return refuse(403, "Another site's page must not read the dashboard.");
  if (path == "/events") decision.route = Route::events;
  if (path == "/state") decision.route = Route::state;
  if (path == "/metrics") decision.route = Route::metrics;
  if (decision.route == Route::none) return refuse(404, "There are /, /state, /events and /metrics.");
  return decision;
}

std::string answer_head(unsigned status, std::string_view type, std::size_t body_bytes, std::string_view policy) {
  const std::string content = type.empty()
                                  ? std::string("Content-Type: text/event-stream\r\n")
                                  : fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n", type, body_bytes);
  return fmt::format(
      "HTTP/1.1 {} {}\r\n{}{}"
      "Content-Security-Policy: {}\r\n"
      "X-Content-Type-Options: nosniff\r\n"
      "X-Frame-Options: DENY\r\n"
      "Referrer-Policy: no-referrer\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\n"
      "Cross-Origin-Opener-Policy: same-origin\r\n"
      "Cache-Control: no-store\r\n"
      "Connection: close\r\n\r\n",
      status, name_of(status), content, status == 405 ? "Allow: GET, HEAD\r\n" : "", policy);
}

}  // namespace lockstep::dashboard
