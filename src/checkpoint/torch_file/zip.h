// ZIP archives whose members are stored, not compressed: the container of torch.save.
//
// Pure functions over bytes; no files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/status.h"

namespace lockstep::checkpoint {

// The members by name; they point into the bytes that were parsed.
using ZipMembers = std::map<std::string, std::span<const std::byte>>;

// Strict: protocol_error with the reason unless `file` is one archive, on one disk, of stored members with their
// checksums. Archives of more than 4 GiB (ZIP64) are read, too. Never reads beyond `file`.
Result<ZipMembers> parse_zip(std::span<const std::byte> file);

// What a new archive consists of: head[0], the data of member 0, head[1], the data of member 1, ..., tail.
struct ZipLayout {
  std::vector<std::string> heads;
  std::string tail;
};
struct ZipEntry {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
};
// The data of each member begins at a multiple of 64, as in torch's archives.
ZipLayout lay_out_zip(std::span<const ZipEntry> entries);

}  // namespace lockstep::checkpoint
