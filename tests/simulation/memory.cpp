// operator new and delete of the simulation. Everything runs on one thread, which allocates all the time: a list of
// free blocks per size takes less than half the time of malloc.
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kUnit = 16;          // sizes are multiples of it
constexpr std::size_t kSizes = 128;        // larger blocks come from malloc
constexpr std::size_t kChunk = 256 << 10;  // what malloc provides at a time

// Precedes every block.
struct alignas(kUnit) Header {
  std::size_t size;  // in units, without the header
};
static_assert(sizeof(Header) == kUnit);

struct FreeBlock {
  FreeBlock* next;
};

FreeBlock* free_blocks[kSizes];
char* chunk = nullptr;
std::size_t chunk_left = 0;

char* take(std::size_t bytes) {
  if (chunk_left < bytes) {
    chunk = static_cast<char*>(std::malloc(kChunk));
    if (chunk == nullptr) throw std::bad_alloc();
    chunk_left = kChunk;
  }
  chunk_left -= bytes;
  return chunk + chunk_left;
}

void* place(char* memory, std::size_t size) {
  if (memory == nullptr) throw std::bad_alloc();
  new (memory) Header{.size = size};
  return memory + sizeof(Header);
}

}  // namespace

void* operator new(std::size_t bytes) {
  const std::size_t size = bytes == 0 ? 1 : (bytes + kUnit - 1) / kUnit;
  if (size >= kSizes) return place(static_cast<char*>(std::malloc(sizeof(Header) + size * kUnit)), size);
  if (FreeBlock* const block = free_blocks[size]) {
    free_blocks[size] = block->next;
    return block;
  }
  return place(take(sizeof(Header) + size * kUnit), size);
}

void operator delete(void* block) noexcept {
  if (block == nullptr) return;
  Header* const header = static_cast<Header*>(block) - 1;
  const std::size_t size = header->size;
  if (size >= kSizes) return std::free(header);
  free_blocks[size] = new (block) FreeBlock{.next = free_blocks[size]};
}

void operator delete(void* block, std::size_t) noexcept { operator delete(block); }
