#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "rendezvous/member_record.h"

namespace {

// A record that a parser accepts must survive a round trip.
template <typename Parser>
void round_trip(std::string_view bytes, Parser parse) {
  const auto first = parse(bytes);
  if (!first.ok()) return;
  const auto second = parse(lockstep::format(*first));
  if (!second.ok() || !(*first == *second)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto records = lockstep::parse_member_records(bytes); records.ok()) {
    std::string again;
    for (const auto& record : *records) again += lockstep::format(record);
    if (again != bytes) std::abort();
  }
  round_trip(bytes, lockstep::parse_invitation);
  round_trip(bytes, lockstep::parse_failure);
  round_trip(bytes, lockstep::parse_values);
  round_trip(bytes, lockstep::parse_ranks);
  return 0;
}
