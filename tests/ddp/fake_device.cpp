#include "ddp/fake_device.h"

#include <ATen/CPUFunctions.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <sys/mman.h>
#include <torch/library.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <system_error>

#include "communicator/work_state.h"
#include "ddp/torch_compat.h"

// With this, autograd searches for an accelerator that identifies itself as one.
#if __has_include(<ATen/detail/PrivateUse1HooksInterface.h>)
#include <ATen/detail/PrivateUse1HooksInterface.h>
#define LOCKSTEP_TORCH_HAS_ACCELERATORS 1
#endif

namespace lockstep::testing {
namespace {

constexpr at::DeviceIndex kDevices = 4;

// Both mappings of one file: tensors point into the first, which must not be accessed; kernels use the second.
class Arena {
 public:
  static Arena& instance() {
    static Arena* arena = new Arena;
    return *arena;
  }
  void* take(std::size_t bytes) {
    const std::size_t begin = used_.fetch_add((bytes + 4095) / 4096 * 4096);
    if (begin + bytes > kBytes) throw std::bad_alloc();
    return device_ + begin;
  }
  void* host_address(const void* device) { return host_ + (static_cast<const char*>(device) - device_); }

 private:
  static constexpr std::size_t kBytes = std::size_t{8} << 30;  // never freed; pages are allocated at their first use
  Arena() {
    const int file = memfd_create("fake_device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, kBytes) != 0) throw std::system_error(errno, std::generic_category(), "memfd");
    device_ = map(file, PROT_NONE);
    host_ = map(file, PROT_READ | PROT_WRITE);
    close(file);
  }
  static char* map(int file, int protection) {
    void* address = mmap(nullptr, kBytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (address == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    return static_cast<char*>(address);
  }

  char* device_ = nullptr;
  char* host_ = nullptr;
  std::atomic<std::size_t> used_{0};
};

thread_local at::DeviceIndex current_device = 0;
thread_local int current_streams[kDevices] = {};
std::mutex waits_mutex;
std::vector<std::string> waits;  // guarded by waits_mutex

struct FakeGuard final : c10::impl::DeviceGuardImplInterface {
  at::DeviceType type() const override { return kFake; }
  at::Device exchangeDevice(at::Device device) const override {
    const at::Device before = getDevice();
    current_device = device.index();
    return before;
  }
  at::Device getDevice() const override { return {kFake, current_device}; }
  void setDevice(at::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(at::Device device) const noexcept override {
    if (device.has_index()) current_device = device.index();
  }
  c10::Stream getStream(at::Device device) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, device, current_streams[device.index()]);
  }
  c10::Stream getDefaultStream(at::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const c10::Stream before = getStream(stream.device());
    current_streams[stream.device_index()] = static_cast<int>(stream.id());
    return before;
  }
  at::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  void record(void** event, const c10::Stream& stream, const at::DeviceIndex, const c10::EventFlag) const override {
    delete static_cast<int*>(*event);
    *event = new int(static_cast<int>(stream.id()));
  }
  void block(void* event, const c10::Stream& stream) const override {
    std::lock_guard lock(waits_mutex);
    waits.push_back(std::to_string(stream.id()) + "<" + std::to_string(*static_cast<int*>(event)));
  }
  void destroyEvent(void* event, const at::DeviceIndex) const noexcept override { delete static_cast<int*>(event); }
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
};

class FakeAllocator final : public compat::WrappingAllocator {
 public:
  FakeAllocator() : WrappingAllocator(nullptr) {}

 private:
  at::DataPtr allocate_bytes(std::size_t bytes) override {
    void* data = bytes == 0 ? nullptr : Arena::instance().take(bytes);
    return {data, data, [](void*) {}, at::Device(kFake, current_device)};
  }
};

c10::Allocator* allocator() {
  static auto* made = new FakeAllocator;
  return made;
}

// The same memory for the CPU's kernels.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.device().type() != kFake) return tensor;
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  return at::from_blob(Arena::instance().host_address(tensor.data_ptr()), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

at::Tensor empty(at::IntArrayRef size, torch::optional<at::ScalarType> dtype, torch::optional<at::Layout>,
                 torch::optional<at::Device> device, torch::optional<bool>,
                 torch::optional<at::MemoryFormat> memory_format) {
  const c10::DeviceGuard guard(device.value_or(at::Device(kFake, current_device)));
  return at::detail::empty_generic(size, allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), memory_format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, torch::optional<at::ScalarType> dtype,
                         torch::optional<at::Layout>, torch::optional<at::Device> device, torch::optional<bool>) {
  const c10::DeviceGuard guard(device.value_or(at::Device(kFake, current_device)));
  return at::detail::empty_strided_generic(
      size, stride, allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  on_host(to).copy_(on_host(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) {
    const at::Tensor fresh = at::empty_strided(from.sizes(), from.strides(), to.options());
    at::Tensor(to).set_(fresh.storage(), 0, fresh.sizes(), fresh.strides());
  }
  return copy_from(from, to, false);
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      torch::optional<std::int64_t> offset) {
  return at::cpu::as_strided(self, size, stride, offset);
}
at::Tensor view(const at::Tensor& self, at::IntArrayRef size) { return at::cpu::view(self, size); }
at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::cpu::_reshape_alias(self, size, stride);
}
at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  return at::cpu::set_(self, std::move(source), offset, size, stride);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
}

void on_the_cpu(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  at::native::cpu_fallback(operation, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>());
}

#if LOCKSTEP_TORCH_HAS_ACCELERATORS
struct FakeHooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
};

void announce_accelerator() {
  c10::register_privateuse1_backend("privateuseone");
  at::RegisterPrivateUse1HooksInterface(new FakeHooks);
}
#else
void announce_accelerator() {}
#endif

class FakeDeviceGroup final : public ProcessGroup {
 public:
  explicit FakeDeviceGroup(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

  const std::string& backend() const override { return group_->backend(); }
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  int local_rank() const override { return group_->local_rank(); }
  int local_size() const override { return group_->local_size(); }
  std::string describe() const override { return group_->describe(); }
  Status check(const at::Tensor& tensor, std::optional<ReduceOp> op) const override {
    return group_->check(on_host(tensor), op);
  }

  // Runs the operation on copies. The result reaches the device with the first wait.
  Work submit(const TensorOperation& operation) override {
    const at::Tensor& any = operation.tensor();
    if (!any.defined() || any.device().type() != kFake) return group_->submit(operation);
    TensorOperation copied = operation;
    if (operation.input.defined()) copied.input = on_host(operation.input).clone();
    if (operation.output.defined()) {
      copied.output = operation.output.is_same(operation.input) ? copied.input : on_host(operation.output).clone();
    }
    const Work work = group_->submit(copied);
    auto state = std::make_shared<detail::WorkState>();
    state->set_arrival(
        [work, output = operation.output, out = copied.output, once = std::make_shared<std::once_flag>()] {
          const Status status = work.wait(Deadline::at(Deadline::Clock::time_point::max()));
          if (status.ok() && output.defined()) std::call_once(*once, [&] { on_host(output).copy_(out); });
          return status;
        });
    state->complete(Status());
    return Work(state);
  }

  at::Tensor empty(std::int64_t count, at::ScalarType dtype, at::Device device) override {
    return group_->empty(count, dtype, device);
  }
  Memory allocate(std::size_t bytes) override { return group_->allocate(bytes); }
  void abort(const std::string& reason) override { group_->abort(reason); }
  Status health() const override { return group_->health(); }

 protected:
  std::shared_ptr<ProcessGroup> make_subgroup(std::span<const int> ranks, const std::string& name) override {
    return std::make_shared<FakeDeviceGroup>(group_->new_group(ranks, name));
  }

 private:
  const std::shared_ptr<ProcessGroup> group_;
};

}  // namespace

void install_fake_device() {
  static const bool installed = [] {
    c10::SetAllocator(kFake, allocator());
    announce_accelerator();
    static const c10::impl::DeviceGuardImplRegistrar registrar(kFake, new FakeGuard);
    return true;
  }();
  (void)installed;
}

void set_fake_stream(at::DeviceIndex device, int stream) { current_streams[device] = stream; }

std::vector<std::string> take_stream_waits() {
  std::lock_guard lock(waits_mutex);
  return std::exchange(waits, {});
}

std::shared_ptr<ProcessGroup> group_for_fake_device(std::shared_ptr<ProcessGroup> group) {
  return std::make_shared<FakeDeviceGroup>(std::move(group));
}

}  // namespace lockstep::testing
