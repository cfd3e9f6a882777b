// One connection of the dashboard's server: reads one request, answers it, and is closed. A viewer's connection stays
// open for updates.
#pragma once

// Boost 1.74 uses std::exchange without including it.
#include <utility>
//
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
//
#include <array>
#include <chrono>
#include <memory>
#include <string>

#include "dashboard/http/request_check.h"
#include "dashboard/http/server.h"

namespace lockstep::dashboard {

// Used by the server's thread.
class Session : public std::enable_shared_from_this<Session> {
 public:
  using Clock = std::chrono::steady_clock;

  Session(boost::asio::ip::tcp::socket socket, ServedContent& content, const ServerLimits& limits);

  void start();
  // There is a new state: sends it to a viewer, unless the one before has not been sent completely.
  void update();
  // The same, and closes the connection afterwards. Others are closed at once.
  void finish();
  // Closes the connection if it took too long.
  void check_time(Clock::time_point now);
  void close();
  bool closed() const { return !socket_.is_open(); }

 private:
  void answer(const boost::system::error_code& error);
  void answer(unsigned status, std::string_view type, std::string_view body, bool head_only);
  void view();
  void send(std::shared_ptr<const std::string> text);
  void sent();
  void watch_peer();

  boost::asio::ip::tcp::socket socket_;
  ServedContent& content_;
  const ServerLimits& limits_;
  boost::beast::flat_buffer input_;
  boost::beast::http::request_parser<boost::beast::http::empty_body> parser_;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::array<char, 512> ignored_;
  std::size_t ignored_bytes_ = 0;

  std::shared_ptr<const std::string> output_;  // being sent; null: nothing
  std::string head_;
  bool viewer_ = false;
  bool last_ = false;       // close when output_ has been sent
  std::uint64_t seen_ = 0;  // the tick of the last state that was sent to a viewer
};

}  // namespace lockstep::dashboard
