#include "base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "base/log.h"
#include "base/net/socket.h"

namespace lockstep {

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      log_error("getrandom failed: {}; no connection can be authenticated without random numbers", errno_text(errno));
      std::abort();
    }
  }
}

std::string random_hex(std::size_t bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::vector<std::byte> raw(bytes);
  fill_random(raw);
  std::string text;
  text.reserve(2 * bytes);
  for (const std::byte byte : raw) {
    text.push_back(kDigits[std::to_integer<unsigned>(byte) >> 4]);
    text.push_back(kDigits[std::to_integer<unsigned>(byte) & 15]);
  }
  return text;
}

}  // namespace lockstep
