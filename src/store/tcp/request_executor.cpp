#include "store/tcp/request_executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/net/socket.h"

namespace lockstep {

using store_protocol::Answer;
using store_protocol::Op;
using store_protocol::Request;

namespace {

// The memory that one client's waits may occupy, so that it cannot exhaust the server.
constexpr std::size_t kMaxWaitBytes = std::size_t{16} << 20;
constexpr std::size_t kWaitOverheadBytes = 256;
const std::string kNoKey;  // of a wait or check for no keys
constexpr std::uint64_t kLongestWaitUs = 365ULL * 24 * 3600 * 1'000'000;

Answer answer_to(const Request& request) {
  Answer answer;
  answer.id = request.id;
  answer.op = request.op;
  return answer;
}

Answer failed(const Request& request, Status status) {
  Answer answer = answer_to(request);
  answer.status = std::move(status);
  return answer;
}

template <typename T>
void put_number(Answer& answer, const Result<T>& result) {
  answer.status = result.status();
  if (result.ok()) answer.number = static_cast<std::int64_t>(*result);
}

void put_list(Answer& answer, std::map<std::string, std::string> pairs, const std::string& prefix) {
  std::size_t bytes = 0;
  for (const auto& [key, value] : pairs) bytes += key.size() + value.size() + 2 * sizeof(std::uint32_t);
  if (bytes + sizeof(std::uint32_t) > store_protocol::kMaxAnswerBytes) {
    answer.status = Status(StatusCode::resource_exhausted,
                           fmt::format("the list of prefix {} has {} bytes, more than the {} of an answer; list a "
                                       "longer prefix",
                                       key_text(prefix), bytes, store_protocol::kMaxAnswerBytes));
    return;
  }
  answer.pairs = std::move(pairs);
}

void put_value(Answer& answer, const std::string& value) {
  if (value.size() + sizeof(std::uint32_t) > store_protocol::kMaxAnswerBytes) {
    answer.status =
        Status(StatusCode::resource_exhausted, fmt::format("the value has {} bytes, more than the {} of an answer",
                                                           value.size(), store_protocol::kMaxAnswerBytes));
    return;
  }
  answer.value = value;
}

// All operations that neither wait nor belong to the connection.
Answer execute_now(StoreState& state, const Request& request) {
  Answer answer = answer_to(request);
  const std::string& key = request.keys.empty() ? kNoKey : request.keys.front();
  switch (request.op) {
    case Op::set: answer.status = state.set(key, request.value); break;
    case Op::add: put_number(answer, state.add(key, request.amount)); break;
    case Op::append: put_number(answer, state.append(key, request.value)); break;
    case Op::check: answer.number = state.has_all(request.keys) ? 1 : 0; break;
    case Op::remove: answer.number = state.remove(key) ? 1 : 0; break;
    case Op::list: put_list(answer, state.list(key), key); break;
    case Op::compare_set: {
      const auto value = state.compare_set(key, request.expected, request.value);
      answer.status = value.status();
      if (value.ok()) put_value(answer, *value);
      break;
    }
    case Op::get: put_value(answer, *state.find(key)); break;  // exists, see begin_wait
    case Op::wait:
    case Op::set_last_will:
    case Op::withdraw_last_will: break;
  }
  return answer;
}

// The store's address from the client's view, for messages.
std::string where(const ServerConnection& connection) {
  const auto address = local_address(connection.fd());
  return fmt::format("the store at {}", address.ok() ? address->to_string() : "an unknown address");
}

}  // namespace

bool RequestExecutor::serve(ServerConnection& connection) {
  while (!connection.doomed) {
    if (connection.congested()) return true;
    const auto frame = connection.next_frame();
    if (!frame.ok()) {
      doom_(connection, frame.status());
      return false;
    }
    if (!frame->has_value()) return false;
    const auto& [header, body, too_large] = **frame;
    if (too_large) {
      Request refused;
      refused.id = header.id;
      refused.op = header.op;
      answer(connection,
             failed(refused, Status(StatusCode::resource_exhausted,
                                    fmt::format("the request has {} bytes; the store's limits max_key_bytes = {} and "
                                                "max_value_bytes = {} allow fewer",
                                                header.body_bytes, limits_.max_key_bytes, limits_.max_value_bytes))));
      continue;
    }
    auto request = store_protocol::parse_request(header, body);
    if (!request.ok()) {
      doom_(connection, request.status());
      return false;
    }
    execute(connection, std::move(*request));
  }
  return false;
}

void RequestExecutor::execute(ServerConnection& connection, Request request) {
  switch (request.op) {
    case Op::get:
    case Op::wait: begin_wait(connection, std::move(request)); return;
    case Op::set_last_will: {
      Answer result = answer_to(request);
      result.status = keep_will(connection, request.keys.front(), request.value);
      result.number = result.status.ok() ? 1 : 0;
      answer(connection, result);
      return;
    }
    case Op::withdraw_last_will: {
      const auto will = connection.wills.find(request.keys.front());
      if (will != connection.wills.end()) {
        connection.will_bytes -= will->first.size() + will->second.size();
        connection.wills.erase(will);
      }
      answer(connection, answer_to(request));
      return;
    }
    default: answer(connection, execute_now(state_, request)); return;
  }
}

Status RequestExecutor::keep_will(ServerConnection& connection, const std::string& key, const std::string& value) {
  const auto old = connection.wills.find(key);
  const std::size_t old_bytes = old == connection.wills.end() ? 0 : key.size() + old->second.size();
  const std::size_t bytes = connection.will_bytes - old_bytes + key.size() + value.size();
  // All wills of a client together may have as many bytes as one key and its value.
  const std::size_t limit = limits_.max_key_bytes + limits_.max_value_bytes;
  if (key.size() > limits_.max_key_bytes || value.size() > limits_.max_value_bytes || bytes > limit) {
    return Status(StatusCode::resource_exhausted,
                  fmt::format("the last wills of this client would have {} bytes (key {}); the store's limits "
                              "max_key_bytes = {} and max_value_bytes = {} allow {}",
                              bytes, key_text(key), limits_.max_key_bytes, limits_.max_value_bytes, limit));
  }
  connection.wills[key] = value;
  connection.will_bytes = bytes;
  return {};
}

void RequestExecutor::answer(ServerConnection& connection, const Answer& answer) {
  connection.queue(store_protocol::format_answer(answer));
  if (connection.overflowing()) {
    doom_(connection, Status(StatusCode::resource_exhausted, "it does not read its answers"));
  }
}

void RequestExecutor::begin_wait(ServerConnection& connection, Request request) {
  const auto missing = state_.missing(request.keys);
  if (missing.empty()) {
    answer(connection, execute_now(state_, request));
    return;
  }
  if (request.timeout_us == 0) {
    answer(connection, failed(request, missing_keys_error(missing, where(connection))));
    return;
  }
  std::size_t bytes = kWaitOverheadBytes;
  for (const std::string& key : request.keys) bytes += key.size() + sizeof(std::string);
  if (connection.wait_bytes + bytes > kMaxWaitBytes) {
    answer(connection, failed(request, Status(StatusCode::resource_exhausted,
                                              fmt::format("this client's pending waits would occupy more than {} bytes",
                                                          kMaxWaitBytes))));
    return;
  }
  const std::uint64_t id = request.id;
  if (connection.waits.contains(id)) {
    doom_(connection, Status(StatusCode::protocol_error, fmt::format("request id {} is used twice", id)));
    return;
  }
  const auto due = Clock::now() + std::chrono::microseconds(std::min(request.timeout_us, kLongestWaitUs));
  connection.wait_bytes += bytes;
  ServerConnection::PendingWait& wait = connection.waits[id];
  wait.bytes = bytes;
  wait.timer = timers_.emplace(due, std::pair(&connection, id));
  wait.waiter = state_.add_waiter(request.keys, [this, &connection, id] { finish_wait(connection, id); });
  wait.request = std::move(request);
}

void RequestExecutor::finish_wait(ServerConnection& connection, std::uint64_t id) {
  answer(connection, execute_now(state_, connection.waits.at(id).request));
  woken_.push_back(&connection);
  forget_wait(connection, id, true);
}

void RequestExecutor::forget_wait(ServerConnection& connection, std::uint64_t id, bool completed) {
  const auto wait = connection.waits.find(id);
  if (!completed) state_.remove_waiter(wait->second.waiter);
  timers_.erase(wait->second.timer);
  connection.wait_bytes -= wait->second.bytes;
  connection.waits.erase(wait);
}

void RequestExecutor::expire_waits(Clock::time_point now) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const auto [connection, id] = timers_.begin()->second;
    const Request& request = connection->waits.at(id).request;
    answer(*connection, failed(request, missing_keys_error(state_.missing(request.keys), where(*connection))));
    woken_.push_back(connection);
    forget_wait(*connection, id, false);
  }
}

RequestExecutor::Clock::time_point RequestExecutor::next_expiry() const {
  return timers_.empty() ? Clock::time_point::max() : timers_.begin()->first;
}

ServerConnection* RequestExecutor::take_woken() {
  if (woken_.empty()) return nullptr;
  ServerConnection* const connection = woken_.back();
  woken_.pop_back();
  return connection;
}

void RequestExecutor::forget(ServerConnection& connection) {
  while (!connection.waits.empty()) forget_wait(connection, connection.waits.begin()->first, false);
}

void RequestExecutor::execute_wills(const std::map<std::string, std::string>& wills, const std::string& peer) {
  for (const auto& [key, value] : wills) {
    if (const Status status = state_.set(key, value); !status.ok()) {
      log_warn("the last will of {} is lost: {}", peer, status.message());
    }
  }
}

}  // namespace lockstep
