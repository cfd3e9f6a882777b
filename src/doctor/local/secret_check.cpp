#include "doctor/local/secret_check.h"

#include <fmt/format.h>

#include <set>
#include <string_view>

namespace lockstep::doctor {
namespace {

constexpr std::size_t kFewestBytes = 16;
constexpr std::size_t kFewestLetters = 8;  // different ones
constexpr const char* kMakeOne =
    "make one with `(umask 077; openssl rand -hex 32 > secret)`, copy it to all hosts, and set LOCKSTEP_SECRET_FILE to "
    "it";

}  // namespace

Finding judge_secret(const Result<Secret>& secret, bool several_hosts) {
  if (!secret.ok()) return red("secret", secret.status().message(), kMakeOne);
  if (secret->empty()) {
    return several_hosts ? red("secret", "not set, and ranks of several hosts need one", kMakeOne)
                         : green("secret", "not set; on one host, `lockstep run` makes one");
  }
  const std::string_view key = secret->key();
  const std::set<char> letters(key.begin(), key.end());
  const std::string value = fmt::format("set, {} bytes", key.size());
  if (key.size() < kFewestBytes || letters.size() < kFewestLetters) {
    return yellow("secret", value + ": can be guessed", kMakeOne);
  }
  return green("secret", value);
}

}  // namespace lockstep::doctor
