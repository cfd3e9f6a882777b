#include <lockstep/base/status.h>

namespace lockstep {

const char* to_string(StatusCode code) {
  switch (code) {
    case StatusCode::ok: return "ok";
    case StatusCode::invalid_argument: return "invalid_argument";
    case StatusCode::timed_out: return "timed_out";
    case StatusCode::peer_lost: return "peer_lost";
    case StatusCode::mismatch: return "mismatch";
    case StatusCode::aborted: return "aborted";
    case StatusCode::unavailable: return "unavailable";
    case StatusCode::unauthenticated: return "unauthenticated";
    case StatusCode::resource_exhausted: return "resource_exhausted";
    case StatusCode::protocol_error: return "protocol_error";
    case StatusCode::already_exists: return "already_exists";
    case StatusCode::not_found: return "not_found";
    case StatusCode::closed: return "closed";
    case StatusCode::internal: return "internal";
  }
  return "unknown";
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(lockstep::to_string(code_)) + ": " + message_;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(code_, std::string(context) + ": " + message_);
}

void throw_if_error(const Status& status) {
  if (!status.ok()) throw Error(status);
}

}  // namespace lockstep
