#include "doctor/network/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "base/net/connect_channel.h"
#include "base/net/resolve.h"
#include "doctor/network/echo_server.h"

namespace lockstep::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kConnectTimeout{3};
constexpr int kRoundTrips = 200;
constexpr std::chrono::milliseconds kRoundTripTime{200};  // at most, for all of them
constexpr double kDataSeconds = 0.3;
constexpr std::uint64_t kFirstData = std::uint64_t{256} << 10;

template <typename T>
Status send_value(Channel& channel, const T& value, Deadline deadline) {
  return send_all(channel, std::as_bytes(std::span(&value, 1)), deadline);
}

// As NTP does: of the fastest round trip, because least of it was spent in queues. The other clock's times lie
// somewhere within the round trip, so half of the rest bounds the error.
Status measure_clock(Channel& channel, LinkReport& link, Deadline deadline) {
  const Deadline enough = Deadline::after(kRoundTripTime);
  double fastest = -1;
  for (int i = 0; i < kRoundTrips && (i < 3 || !enough.expired()); ++i) {
    ClockAnswer answer;
    const auto start = Clock::now();
    const std::int64_t sent = wall_clock_ns();
    LOCKSTEP_RETURN_IF_ERROR(send_value(channel, Request{}, deadline));
    LOCKSTEP_RETURN_IF_ERROR(receive_all(channel, std::as_writable_bytes(std::span(&answer, 1)), deadline));
    const double trip = std::chrono::duration<double>(Clock::now() - start).count();
    if (fastest >= 0 && trip >= fastest) continue;
    fastest = trip;
    const double there = static_cast<double>(answer.sent - answer.received) * 1e-9;
    link.latency_seconds = trip / 2;
    link.clock_error_seconds = std::max(0.0, trip - there) / 2;
    link.clock_offset_seconds = static_cast<double>(answer.received - sent) * 1e-9 - link.clock_error_seconds;
  }
  return {};
}

Result<double> time_data(Channel& channel, std::uint64_t bytes, Deadline deadline) {
  const std::vector<std::byte> data(std::size_t{1} << 20);
  const auto start = Clock::now();
  LOCKSTEP_RETURN_IF_ERROR(send_value(channel, Request{.kind = RequestKind::data, .length = bytes}, deadline));
  for (std::uint64_t left = bytes; left > 0;) {
    const std::size_t part = std::min<std::uint64_t>(left, data.size());
    LOCKSTEP_RETURN_IF_ERROR(send_all(channel, std::span(data).first(part), deadline));
    left -= part;
  }
  std::byte end{};
  LOCKSTEP_RETURN_IF_ERROR(receive_all(channel, std::span(&end, 1), deadline));
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Larger amounts until one takes long enough.
Status measure_bandwidth(Channel& channel, LinkReport& link, Deadline deadline) {
  std::uint64_t bytes = kFirstData;
  while (true) {
    const auto seconds = time_data(channel, bytes, deadline);
    if (!seconds.ok()) return seconds.status();
    link.bytes_per_second = static_cast<double>(bytes) / std::max(*seconds, 1e-9);
    if (*seconds >= kDataSeconds / 2 || bytes >= kLargestData) return {};
    const double enough = link.bytes_per_second * kDataSeconds;
    bytes = std::clamp(static_cast<std::uint64_t>(enough), bytes * 2, std::max(bytes * 2, kLargestData));
    bytes = std::min(bytes, kLargestData);
  }
}

}  // namespace

void measure_link(LinkReport& link, const Secret& secret, EncryptionPolicy policy, Deadline deadline) {
  const auto place = parse_host_port(link.ranks_address);
  if (!place.ok()) return;
  const auto addresses = resolve(place->host, place->port, deadline);
  if (!addresses.ok()) return;
  Attempt attempt = attempt_to_connect(addresses->front(), deadline.earlier(Deadline::after(kConnectTimeout)));
  link.ranks = attempt.reach;
  if (attempt.reach != Reach::answered) return;
  auto channel =
      connect_channel(std::move(attempt.fd), secret, measurement_identity(link.from, link.to), policy, deadline);
  if (!channel.ok()) {
    link.ranks = channel.status().code() == StatusCode::unauthenticated ? Reach::no_secret
                 : channel.status().code() == StatusCode::timed_out     ? Reach::dropped
                                                                        : Reach::reset;
    return;
  }
  const Status clock = measure_clock(*channel, link, deadline);
  const Status bandwidth = clock.ok() ? measure_bandwidth(*channel, link, deadline) : clock;
  // Large packets may vanish where small ones pass.
  if (!bandwidth.ok()) link.ranks = bandwidth.code() == StatusCode::timed_out ? Reach::dropped : Reach::reset;
}

}  // namespace lockstep::doctor
