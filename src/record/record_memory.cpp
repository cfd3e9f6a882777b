#include "record/record_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string_view>

#include "base/random.h"

namespace lockstep::record {
namespace {

constexpr std::uint32_t kSizeCheck = static_cast<std::uint32_t>(sizeof(RecordArea) / 4096);

struct Inherited {
  int fd = -1;
  std::uint64_t token = 0;
};

std::optional<Inherited> parse_variable(const char* value) {
  if (value == nullptr) return std::nullopt;
  const char* const end = value + std::strlen(value);
  Inherited inherited;
  const auto fd = std::from_chars(value, end, inherited.fd);
  if (fd.ec != std::errc() || fd.ptr == end || *fd.ptr != ':' || inherited.fd <= 2) return std::nullopt;
  const auto token = std::from_chars(fd.ptr + 1, end, inherited.token, 16);
  if (token.ec != std::errc() || token.ptr != end || inherited.token == 0) return std::nullopt;
  return inherited;
}

// Null if there is none for this process.
RecordArea* map_inherited() {
  const auto inherited = parse_variable(std::getenv(kMemoryVariable));
  if (!inherited) return nullptr;
  // A duplicate: the number may belong to another file of the program, which must stay open.
  auto memory = map_record(UniqueFd(::fcntl(inherited->fd, F_DUPFD_CLOEXEC, 3)));
  if (!memory.ok()) return nullptr;
  auto* area = reinterpret_cast<RecordArea*>((*memory)->data());
  std::int64_t unused = 0;
  if (area->token.load() != inherited->token || !area->pid.compare_exchange_strong(unused, -1)) return nullptr;
  ::close(inherited->fd);
  (*memory)->close_fd();
  // Mapped as long as the process lives. Marked as used, so that the pointer is kept and leak checkers can follow it.
  [[gnu::used]] static SharedMemory* const kept = memory->release();
  return area;
}

}  // namespace

RecordMemory::RecordMemory(std::unique_ptr<SharedMemory> memory)
    : memory_(std::move(memory)), area_(reinterpret_cast<RecordArea*>(memory_->data())) {}

Result<std::unique_ptr<RecordMemory>> RecordMemory::create() {
  auto memory = SharedMemory::create(sizeof(RecordArea), "lockstep-record");
  if (!memory.ok()) return memory.status();
  std::unique_ptr<RecordMemory> record(new RecordMemory(*std::move(memory)));
  std::uint64_t token = 0;
  while (token == 0) fill_random(std::as_writable_bytes(std::span(&token, 1)));
  record->area_->token.store(token);
  record->area_->layout.store(kLayoutVersion);
  record->area_->size_check.store(kSizeCheck);
  record->area_->magic.store(kMagic);
  return record;
}

std::string RecordMemory::variable() const { return fmt::format("{}:{:016x}", fd(), area_->token.load()); }

Result<std::unique_ptr<SharedMemory>> map_record(UniqueFd fd) {
  if (!fd.valid()) return Status(StatusCode::not_found, "there is no recorder's memory");
  auto memory = SharedMemory::map(std::move(fd), sizeof(RecordArea));
  if (!memory.ok()) return memory.status();
  const RecordArea& area = record_area(**memory);
  if (area.magic.load() != kMagic || area.layout.load() != kLayoutVersion || area.size_check.load() != kSizeCheck) {
    return Status(StatusCode::protocol_error, "this is no recorder's memory of this version of Lockstep");
  }
  return memory;
}

RecordArea* map_process_memory() {
  if (RecordArea* inherited = map_inherited()) return inherited;
  void* memory =
      ::mmap(nullptr, sizeof(RecordArea), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<RecordArea*>(memory);
}

}  // namespace lockstep::record
