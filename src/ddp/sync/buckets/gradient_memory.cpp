#include "ddp/sync/buckets/gradient_memory.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/log.h"
#include "ddp/torch_compat.h"

namespace lockstep::detail {

namespace {
// One registration serves several blocks, so that a model of many layers does not need as many fds.
constexpr std::size_t kSlabBytes = std::size_t{64} << 20;
constexpr std::size_t kAlignment = 4096;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
}  // namespace

class GradientMemory::Pool {
 public:
  struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::shared_ptr<void> slab;
  };

  Pool(const std::shared_ptr<ProcessGroup>& group, const std::vector<std::size_t>& sizes) : group_(group) {
    for (std::size_t bytes : sizes) ++classes_[bytes].gradients;
  }

  // A block without data if there is none for this size.
  Block take(std::size_t bytes) {
    std::lock_guard lock(mutex_);
    const auto found = classes_.find(bytes);
    if (found == classes_.end()) return {};
    SizeClass& size = found->second;
    if (size.free.empty()) grow(size, bytes);
    if (size.free.empty()) return {};
    Block block = std::move(size.free.back());
    size.free.pop_back();
    return block;
  }
  void give_back(Block block) {
    std::lock_guard lock(mutex_);
    classes_.at(block.bytes).free.push_back(std::move(block));
  }
  bool owns(const void* address) const {
    std::lock_guard lock(mutex_);
    const auto* byte = static_cast<const std::byte*>(address);
    return std::any_of(slabs_.begin(), slabs_.end(),
                       [byte](const auto& slab) { return byte >= slab.first && byte < slab.first + slab.second; });
  }

 private:
  struct SizeClass {
    std::size_t gradients = 0;  // of this size
    std::size_t blocks = 0;     // made so far
    std::vector<Block> free;
  };

  // Twice as many blocks as gradients: backward's temporaries may have the same size. Memory that is
  // never touched costs nothing.
  void grow(SizeClass& size, std::size_t bytes) {
    const std::size_t limit = 2 * size.gradients + 2;
    const std::shared_ptr<ProcessGroup> group = group_.lock();
    if (!group || size.blocks >= limit) return;
    const std::size_t step = aligned(bytes);
    const std::size_t count =
        std::clamp<std::size_t>(kSlabBytes / step, 1, std::min(size.gradients, limit - size.blocks));
    ProcessGroup::Memory memory;
    try {
      memory = group->allocate(count * step);
    } catch (const std::exception& error) {
      size.blocks = limit;  // no further attempts: gradients of this size are staged instead
      log_warn("no registered memory for gradients of {} bytes, they will be copied: {}", bytes, error.what());
      return;
    }
    slabs_.emplace_back(memory.data, count * step);
    for (std::size_t i = 0; i < count; ++i) size.free.push_back({memory.data + i * step, bytes, memory.owner});
    size.blocks += count;
  }

  // Weak: gradients that a program still holds at its end must not keep the group alive.
  const std::weak_ptr<ProcessGroup> group_;
  mutable std::mutex mutex_;
  std::unordered_map<std::size_t, SizeClass> classes_;     // guarded by mutex_
  std::vector<std::pair<std::byte*, std::size_t>> slabs_;  // guarded by mutex_
};

namespace {

// LibTorch's CPU allocator. Never destroyed: blocks may be freed
// after main().
class Router final : public compat::WrappingAllocator {
 public:
  static Router& instance() {
    static Router* router = [] {
      auto* made = new Router(c10::GetCPUAllocator());
      c10::SetCPUAllocator(made);
      return made;
    }();
    return *router;
  }

  void add(std::shared_ptr<GradientMemory::Pool> pool) {
    std::lock_guard lock(mutex_);
    pools_.push_back(std::move(pool));
    open_.store(pools_.size(), std::memory_order_relaxed);
  }
  void remove(const std::shared_ptr<GradientMemory::Pool>& pool) {
    std::lock_guard lock(mutex_);
    std::erase(pools_, pool);
    open_.store(pools_.size(), std::memory_order_relaxed);
  }

  at::DeleterFnPtr raw_deleter() const override { return wrapped_->raw_deleter() == nullptr ? nullptr : &free_any; }

 private:
  using Pool = GradientMemory::Pool;
  using WrappingAllocator::WrappingAllocator;
  struct Live {
    Pool::Block block;
    std::shared_ptr<Pool> pool;
  };

  at::DataPtr allocate_bytes(std::size_t bytes) override {
    // Relaxed: the thread that opened the pool runs backward after it, on this thread or one that it started.
    if (open_.load(std::memory_order_relaxed) == 0 || bytes < kAlignment || c10::GradMode::is_enabled()) {
      return wrapped_->allocate(bytes);
    }
    std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Pool>& pool : pools_) {
      Pool::Block block = pool->take(bytes);
      if (block.data == nullptr) continue;
      void* data = block.data;
      live_.emplace(data, Live{std::move(block), pool});
      return {data, data, &free_block, at::Device(at::kCPU)};
    }
    return wrapped_->allocate(bytes);
  }

  // True if it was one of ours.
  bool release(void* data) {
    Live live;
    {
      std::lock_guard lock(mutex_);
      const auto found = live_.find(data);
      if (found == live_.end()) return false;
      live = std::move(found->second);
      live_.erase(found);
    }
    live.pool->give_back(std::move(live.block));
    return true;
  }
  static void free_block(void* data) { instance().release(data); }
  static void free_any(void* data) {
    if (!instance().release(data)) instance().wrapped_->raw_deleter()(data);
  }

  std::atomic<std::size_t> open_{0};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Pool>> pools_;  // open ones; guarded by mutex_
  std::unordered_map<void*, Live> live_;      // guarded by mutex_
};

// LibTorch reads its pointer to the allocator without synchronisation, and threads that allocate may exist by the time
// the first GradientMemory is made: so it is replaced before main().
[[maybe_unused]] const bool router_is_installed = [] {
  try {
    Router::instance();
    return true;
  } catch (const c10::Error&) {  // LibTorch is linked statically and not initialised yet: with the first GradientMemory
    return false;
  }
}();

}  // namespace

GradientMemory::GradientMemory(const std::shared_ptr<ProcessGroup>& group, const std::vector<std::size_t>& sizes)
    : pool_(std::make_shared<Pool>(group, sizes)) {
  Router::instance();
}

GradientMemory::~GradientMemory() { close(); }

void GradientMemory::open() {
  if (open_) return;
  open_ = true;
  Router::instance().add(pool_);
}

void GradientMemory::close() {
  if (!open_) return;
  open_ = false;
  Router::instance().remove(pool_);
}

bool GradientMemory::owns(const void* address) const { return pool_->owns(address); }

}  // namespace lockstep::detail
