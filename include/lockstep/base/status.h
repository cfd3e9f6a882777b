// Errors: values inside the engine, one exception type in the public API.
//
// Inside the engine every function that can fail returns `Status` or `Result<T>`, because errors
// cross threads there. The public C++ API throws `Error`, which carries the same Status.
// A message states what happened, where, to which rank, and what to do; never a bare errno.
#pragma once

#include <cassert>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace lockstep {

enum class StatusCode : std::uint8_t {
  ok = 0,
  invalid_argument,    // the caller passed something that can never work
  timed_out,           // a deadline passed; the message names the ranks that are missing
  peer_lost,           // a peer's process or link is gone
  mismatch,            // ranks called different operations; the message names both sides
  aborted,             // a rank called abort()
  unavailable,         // an address or service cannot be reached
  unauthenticated,     // a peer did not prove that it has the job's secret
  resource_exhausted,  // a limit of ours or of the system was reached
  protocol_error,      // bytes that no correct peer of this version would send
  already_exists,      // e.g. two processes claim one rank, a port in use
  not_found,
  closed,    // the object was shut down or failed earlier; the message repeats why
  internal,  // a defect in Lockstep
};

// "timed_out", "peer_lost", ... ; never null.
const char* to_string(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::ok; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "peer_lost: rank 2 ..." or "ok".
  std::string to_string() const;
  // The same code, with `context` and ": " put before the message. Ok stays Ok.
  Status with_context(std::string_view context) const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::ok;
  std::string message_;
};

// Either a value, or the Status that explains why there is none (never an Ok status).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<1>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<0>, std::move(status)) { assert(!std::get<0>(state_).ok()); }

  bool ok() const { return state_.index() == 1; }
  // Ok when there is a value.
  Status status() const { return ok() ? Status() : std::get<0>(state_); }

  T& value() & { return std::get<1>(state_); }
  const T& value() const& { return std::get<1>(state_); }
  T&& value() && { return std::get<1>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  std::variant<Status, T> state_;
};

// The only exception type of the public API.
class Error : public std::runtime_error {
 public:
  explicit Error(Status status) : std::runtime_error(status.to_string()), status_(std::move(status)) {}
  const Status& status() const { return status_; }
  StatusCode code() const { return status_.code(); }

 private:
  Status status_;
};

// For the public API: throws Error unless `status` is ok.
void throw_if_error(const Status& status);
template <typename T>
T value_or_throw(Result<T> result) {
  throw_if_error(result.status());
  return std::move(result).value();
}

}  // namespace lockstep

// Returns the error from the calling function, if there is one.
#define LOCKSTEP_RETURN_IF_ERROR(expression)                        \
  do {                                                              \
    if (::lockstep::Status status_ = (expression); !status_.ok()) { \
      return status_;                                               \
    }                                                               \
  } while (false)
