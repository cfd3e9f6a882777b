// The job's secret. Both ends of every store and data connection prove that they have it before the connection is used.
#pragma once

#include <memory>
#include <string_view>

#include "lockstep/base/status.h"

namespace lockstep {

// The key itself is never sent and never logged. Empty if no secret is set. Copies share the key, which is kept in
// memory that is not part of core dumps and is overwritten when the last copy is destroyed.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string_view key);
  bool empty() const { return key_ == nullptr; }
  // Valid as long as a copy of this exists.
  std::string_view key() const;

  // Shorter ones could be guessed: 32 hexadecimal characters are 128 bits. Only from_environment() checks it.
  static constexpr std::size_t kMinCharacters = 32;

  // LOCKSTEP_SECRET, or the content of LOCKSTEP_SECRET_FILE (trailing newline removed; a file that other users than its
  // owner can access is refused). Neither: an empty Secret. Both, or a value with fewer than kMinCharacters: an error.
  //
  // The value of LOCKSTEP_SECRET is taken from the environment: it is overwritten there, so that neither the programs
  // that this process starts nor its core dumps have it. Later calls in this process, and in processes forked from it,
  // return the same secret. A program started by this process gets an error that names LOCKSTEP_SECRET_FILE.
  static Result<Secret> from_environment();

 private:
  class Key;
  std::shared_ptr<const Key> key_;
};

}  // namespace lockstep
