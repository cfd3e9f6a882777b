#include "dashboard/http/session.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>

namespace lockstep::dashboard {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

// How much a client may still send while its answer is in flight; more, and the answer may be lost.
constexpr std::size_t kMostIgnored = std::size_t{64} << 10;
constexpr std::chrono::seconds kCloseTime{1};
constexpr std::string_view kText = "text/plain; charset=utf-8";

std::string_view view_of(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

Session::Session(asio::ip::tcp::socket socket, ServedContent& content, const ServerLimits& limits)
    : socket_(std::move(socket)), content_(content), limits_(limits), input_(limits.head_bytes + 1024) {
  parser_.header_limit(limits.head_bytes);
  parser_.body_limit(0);
}

void Session::start() {
  deadline_ = Clock::now() + limits_.request_time;
  http::async_read_header(socket_, input_, parser_,
                          [self = shared_from_this()](const error_code& error, std::size_t) { self->answer(error); });
}

void Session::answer(const error_code& error) {
  if (closed()) return;
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return answer(431, kText, "The head of the request is too large.\n", false);
  if (error.category() == http::make_error_code(http::error::bad_method).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message)
    return answer(400, kText, "This is not HTTP.\n", false);
  if (error) return close();

  const auto& request = parser_.get();
  const RequestDecision decision = check_request({.method = view_of(request.method_string()),
                                                  .target = view_of(request.target()),
                                                  .host = view_of(request[http::field::host]),
                                                  .fetch_site = view_of(request["Sec-Fetch-Site"])});
  switch (decision.route) {
    case Route::none: return answer(decision.status, kText, std::string(decision.reason) + "\n", decision.head_only);
    case Route::page: return answer(200, "text/html; charset=utf-8", std::string(content_.page()), decision.head_only);
    case Route::state: return answer(200, "application/json", *content_.state(0), decision.head_only);
    case Route::metrics:
      return answer(200, "text/plain; version=0.0.4; charset=utf-8", content_.metrics(), decision.head_only);
    case Route::events: return decision.head_only ? answer(200, "text/event-stream", "", true) : view();
  }
}

void Session::answer(unsigned status, std::string_view type, std::string_view body, bool head_only) {
  last_ = true;
  std::string text = answer_head(status, type, body.size(), content_.policy());
  if (!head_only) text += body;
  send(std::make_shared<const std::string>(std::move(text)));
}

void Session::view() {
  viewer_ = true;
  head_ = answer_head(200, "", 0, content_.policy());
  watch_peer();
  update();
}

void Session::update() {
  if (!viewer_ || output_ || closed()) return;
  const auto state = content_.state(seen_);
  seen_ = content_.tick();
  std::string text = std::exchange(head_, {});
  text.reserve(text.size() + state->size() + 16);
  text += "data: ";
  text += *state;
  text += "\n\n";
  send(std::make_shared<const std::string>(std::move(text)));
}

void Session::send(std::shared_ptr<const std::string> text) {
  output_ = std::move(text);
  deadline_ = Clock::now() + limits_.write_time;
  asio::async_write(socket_, asio::buffer(*output_), [self = shared_from_this()](const error_code& error, std::size_t) {
    if (self->closed()) return;
    if (error) return self->close();
    self->sent();
  });
}

void Session::sent() {
  output_.reset();
  deadline_ = Clock::time_point::max();
  if (!last_) {
    // The viewer was slow: the newest state replaces those that it missed.
    if (seen_ < content_.tick()) update();
    return;
  }
  if (viewer_ && seen_ < content_.tick()) return update();
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  // Closing now could reset the connection, and the client would lose the answer.
  deadline_ = Clock::now() + kCloseTime;
  if (viewer_) return;  // watch_peer() reads already
  watch_peer();
}

// The end of a viewer's connection shows only to a reader.
void Session::watch_peer() {
  socket_.async_read_some(asio::buffer(ignored_),
                          [self = shared_from_this()](const error_code& error, std::size_t size) {
                            if (self->closed()) return;
                            self->ignored_bytes_ += size;
                            if (error || self->ignored_bytes_ > kMostIgnored) return self->close();
                            self->watch_peer();
                          });
}

void Session::finish() {
  if (!viewer_) {
    if (!last_) close();  // it has not sent its request yet
    return;
  }
  last_ = true;
  update();
}

void Session::check_time(Clock::time_point now) {
  if (now >= deadline_) close();
}

void Session::close() {
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace lockstep::dashboard
