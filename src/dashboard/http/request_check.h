// Which requests the dashboard answers. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::dashboard {

enum class Route : std::uint8_t { none, page, events, state, metrics };

// What a request's head contains. Missing fields are empty.
struct RequestHead {
  std::string_view method = {};
  std::string_view target = {};
  std::string_view host = {};        // Host
  std::string_view fetch_site = {};  // Sec-Fetch-Site, which browsers set
};

struct RequestDecision {
  unsigned status = 200;
  Route route = Route::none;     // none unless the status is 200
  std::string_view reason = {};  // one sentence, unless the status is 200
  bool head_only = false;        // HEAD
};

// The dashboard is served on loopback addresses only, so every honest request names one as its host, with any port: it
// may be forwarded. A web page of another site whose name suddenly means 127.0.0.1 (DNS rebinding) names that site.
RequestDecision check_request(const RequestHead& head);

// "localhost", "127.0.0.1:29480", "[::1]".
bool is_loopback_host(std::string_view host);

// The head of an answer; the connection is closed after its body. `type` empty: a stream of events without end.
// `policy`: the Content-Security-Policy.
std::string answer_head(unsigned status, std::string_view type, std::size_t body_bytes, std::string_view policy);

}  // namespace lockstep::dashboard
