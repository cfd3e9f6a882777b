// A small HTTP server for one page, its live updates (Server-Sent Events) and Prometheus' text.
//
// It has a thread of its own, with all signals blocked and a lower priority than the ranks'. Everything that a client
// can make it spend is limited: connections, bytes of a request, time for a request and for reading an answer. A client
// that reads slowly misses intermediate states, not more; one that stops reading is disconnected.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/net/socket.h"

namespace lockstep::dashboard {

// What the server serves. Called by its thread only.
class ServedContent {
 public:
  virtual ~ServedContent() = default;
  // Called once per period.
  virtual void sample() = 0;
  // Increases with each sample.
  virtual std::uint64_t tick() const = 0;
  // One line for a viewer that has seen everything up to tick `since`.
  virtual std::shared_ptr<const std::string> state(std::uint64_t since) = 0;
  virtual std::string metrics() = 0;
  virtual std::string_view page() const = 0;
  virtual std::string_view policy() const = 0;  // its Content-Security-Policy
};

struct ServerLimits {
  std::size_t connections = 64;
  std::size_t accepts_per_period = 200;
  std::uint32_t head_bytes = 8192;
  std::chrono::milliseconds request_time{5000};
  std::chrono::milliseconds write_time{10'000};
  std::chrono::milliseconds period{500};
};

class HttpServer {
 public:
  // `listener`: as listen_on() returns it.
  static Result<std::unique_ptr<HttpServer>> start(UniqueFd listener, std::unique_ptr<ServedContent> content,
                                                   const ServerLimits& limits);
  virtual ~HttpServer() = default;  // ends all connections and the thread

  // Samples once more, sends the result to all viewers and ends their connections. Returns when that is done, or after
  // `time`. Call it once.
  virtual void finish(std::chrono::milliseconds time) = 0;
};

}  // namespace lockstep::dashboard
