// What registrants write into a member store: any bytes parse as a record or return protocol_error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "membership/records.h"
#include "membership/roster.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::membership;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto answer = parse_answer(text); answer.ok()) {
    if (!parse_answer(format(*answer)).ok()) std::abort();
  }
  if (const auto registration = parse_registration(text); registration.ok()) {
    if (!parse_registration(format(*registration)).ok()) std::abort();
  }
  if (const auto roster = parse_roster(text); roster.ok()) {
    if (!parse_roster(format(*roster)).ok()) std::abort();
  }
  return 0;
}
