#include "store/tcp/tcp_store_connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <limits>

#include "base/net/socket.h"
#include "store/store_state.h"

namespace lockstep {

using store_protocol::Answer;
using store_protocol::Request;

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kReadBytes = 64 << 10;
constexpr int kReadsPerTurn = 16;
constexpr auto kAnswerGrace = 2s;

Deadline with_grace(Deadline deadline) {
  const auto left = deadline.remaining();
  return Deadline::after(left > Deadline::Duration::max() - kAnswerGrace ? left : left + kAnswerGrace);
}

// Bytes of the strings; the rest of a request is small.
std::size_t string_bytes(const Request& request) {
  std::size_t bytes = request.value.size() + (request.expected ? request.expected->size() : 0);
  for (const std::string& key : request.keys) bytes += key.size() + sizeof(std::uint32_t);
  return bytes;
}

}  // namespace

TcpStore::Connection::Connection(Channel channel, std::string address)
    : channel_(std::move(channel)), address_(std::move(address)), input_(store_protocol::kMaxAnswerBytes) {}

Result<Answer> TcpStore::Connection::call(Request request, Deadline deadline) {
  if (string_bytes(request) > std::numeric_limits<std::uint32_t>::max() - 1024) {
    return Status(StatusCode::resource_exhausted, "a store request of more than 4 GiB");
  }
  deadline = with_grace(deadline);
  Pending pending;
  Lock lock(mutex_);
  if (!broken_.ok()) return broken_;
  request.id = next_id_++;
  pending_.emplace(request.id, &pending);
  Status status = send(lock, store_protocol::format_request(request), deadline);
  if (status.ok()) status = await(lock, pending, deadline);
  pending_.erase(request.id);
  if (!status.ok()) {
    const std::string keys = request.keys.empty() ? "no key" : key_text(request.keys.front());
    return status.with_context(fmt::format("{} of {}", to_string(request.op), keys));
  }
  if (!pending.answer.status.ok()) return pending.answer.status;
  if (pending.answer.op != request.op) {
    fail(Status(StatusCode::protocol_error, fmt::format("the store at {} answered another operation", address_)));
    return broken_;
  }
  return std::move(pending.answer);
}

void TcpStore::Connection::fail(const Status& why) {
  if (broken_.ok()) broken_ = why;
  changed_.notify_all();
}

Status TcpStore::Connection::send(Lock& lock, const Bytes& frame, Deadline deadline) {
  if (!changed_.wait_until(lock, deadline.when(), [&] { return !sending_ || !broken_.ok(); })) {
    return Status(StatusCode::timed_out,
                  fmt::format("the store at {} does not accept requests; is its process stopped?", address_));
  }
  if (!broken_.ok()) return broken_;
  sending_ = true;
  lock.unlock();
  const Status sent = send_all(channel_, frame, deadline);
  lock.lock();
  sending_ = false;
  if (sent.ok()) {
    changed_.notify_all();
    return {};
  }
  // A partly sent request cannot be undone: no other may follow it.
  fail(Status(sent.code() == StatusCode::timed_out ? StatusCode::timed_out : StatusCode::peer_lost,
              fmt::format("the store at {} is lost: {}", address_, sent.message())));
  return broken_;
}

Status TcpStore::Connection::await(Lock& lock, Pending& pending, Deadline deadline) {
  while (!pending.answered) {
    if (!broken_.ok()) return broken_;
    if (deadline.expired()) {
      return Status(StatusCode::timed_out,
                    fmt::format("the store at {} did not answer before the deadline; is its process stopped, or "
                                "the network cut?",
                                address_));
    }
    if (!reading_) {
      read_answers(lock, deadline);
    } else {
      changed_.wait_until(lock, deadline.when(), [&] { return pending.answered || !reading_ || !broken_.ok(); });
    }
  }
  return {};
}

void TcpStore::Connection::read_answers(Lock& lock, Deadline deadline) {
  reading_ = true;
  lock.unlock();
  std::map<std::uint64_t, Answer> answers;
  Status status = has_more_ ? Status() : wait_ready(channel_.fd(), POLLIN, deadline);
  if (status.ok()) {
    status = take_frames(answers);
  } else if (status.code() == StatusCode::timed_out) {
    status = Status();  // this thread's deadline, not the connection's fault
  }
  lock.lock();
  reading_ = false;
  for (auto& [id, answer] : answers) {
    // The answer of an abandoned request has no receiver.
    if (const auto found = pending_.find(id); found != pending_.end()) {
      found->second->answer = std::move(answer);
      found->second->answered = true;
    }
  }
  if (!status.ok()) fail(status);
  changed_.notify_all();
}

Status TcpStore::Connection::take_frames(std::map<std::uint64_t, Answer>& answers) {
  std::array<std::byte, kReadBytes> buffer;
  has_more_ = true;
  for (int i = 0; i < kReadsPerTurn && has_more_; ++i) {
    const IoResult got = channel_.receive(buffer);
    if (got.closed || got.error != 0) {
      return Status(StatusCode::peer_lost, fmt::format("the store at {} is lost: {}", address_,
                                                       got.error == 0 ? "its process closed the connection or ended"
                                                                      : channel_error_text(got.error)));
    }
    input_.append(std::span(buffer).first(got.bytes));
    has_more_ = got.bytes == buffer.size();
  }
  while (true) {
    const auto frame = input_.next();
    if (!frame.ok()) return frame.status().with_context("the store at " + address_);
    if (!frame->has_value()) return {};
    if ((*frame)->too_large) {
      return Status(StatusCode::protocol_error,
                    fmt::format("the store at {} sent an answer of {} bytes", address_, (*frame)->header.body_bytes));
    }
    auto answer = store_protocol::parse_answer((*frame)->header, (*frame)->body);
    if (!answer.ok()) return answer.status().with_context("the store at " + address_);
    answers.insert_or_assign(answer->id, std::move(*answer));
  }
}

}  // namespace lockstep
