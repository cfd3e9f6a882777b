#include "checkpoint/torch_file/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <unordered_map>

#include "base/printable.h"
#include "checkpoint/torch_file/bytes.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::pair<Dtype, const char*> kStorageClasses[] = {
    {Dtype::f32, "FloatStorage"},     {Dtype::f64, "DoubleStorage"},       {Dtype::f16, "HalfStorage"},
    {Dtype::i64, "LongStorage"},      {Dtype::i32, "IntStorage"},          {Dtype::i16, "ShortStorage"},
    {Dtype::i8, "CharStorage"},       {Dtype::u8, "ByteStorage"},          {Dtype::boolean, "BoolStorage"},
    {Dtype::bf16, "BFloat16Storage"}, {Dtype::c64, "ComplexFloatStorage"},
};
// Types without a class of storages.
constexpr std::pair<Dtype, const char*> kTypesByName[] = {
    {Dtype::f8_e4m3, "torch.float8_e4m3fn"},
    {Dtype::f8_e5m2, "torch.float8_e5m2"},
    {Dtype::u16, "torch.uint16"},
    {Dtype::u32, "torch.uint32"},
    {Dtype::u64, "torch.uint64"},
};

Status refuse_pickle(std::string message) { return {StatusCode::protocol_error, std::move(message)}; }
Status damaged_pickle(std::string_view what) { return refuse_pickle(fmt::format("its pickle is damaged: {}", what)); }

// Values may be used many times, so what is copied for each use is limited.
constexpr std::size_t kMaxName = 256;
constexpr std::size_t kMaxPickledDimensions = 64;

// Whether all elements are inside `count` elements. False on overflow, too.
bool fits(const PickledTensor& tensor, std::int64_t count) {
  if (tensor.shape.size() != tensor.strides.size() || tensor.offset < 0 || tensor.offset > count) return false;
  std::int64_t last = tensor.offset;
  std::int64_t elements = 1;
  bool empty = false;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    const std::int64_t size = tensor.shape[i], stride = tensor.strides[i];
    if (size < 0 || stride < 0) return false;
    if (size == 0) empty = true;
    std::int64_t reach = 0;
    if (size > 0 && (__builtin_mul_overflow(size - 1, stride, &reach) || __builtin_add_overflow(last, reach, &last) ||
                     __builtin_mul_overflow(elements, size, &elements))) {
      return false;
    }
  }
  return empty || last < count;
}

class PickleReader {
 public:
  PickleReader(std::span<const std::byte> bytes, std::size_t most_memory) : bytes_(bytes), memory_left_(most_memory) {}

  Result<Pickle> read() {
    while (status_.ok() && !stopped_) step();
    if (!status_.ok()) return status_;
    if (at_ != bytes_.size()) return damaged_pickle("bytes follow its end");
    return Pickle{std::move(values_), root_};
  }

 private:
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // ---- bytes

  std::span<const std::byte> take(std::uint64_t count) {
    if (count > bytes_.size() - at_) {
      fail(damaged_pickle("it ends early"));
      return {};
    }
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }
  std::uint64_t number(std::size_t size) { return as_number(take(size)); }
  std::string text(std::uint64_t size) { return std::string(as_text(take(size))); }
  std::string line() {
    const std::size_t begin = at_;
    while (at_ < bytes_.size() && bytes_[at_] != std::byte{'\n'}) ++at_;
    const std::size_t size = at_ - begin;
    at_ = begin;
    std::string result = text(size);
    take(1);
    return result;
  }

  // ---- the stack

  // A byte of a pickle can make a value of a hundred, or put it where it costs as much.
  void charge(std::size_t bytes) {
    if (bytes > memory_left_) fail(refuse_pickle("its pickle has more values than any model needs"));
    memory_left_ -= std::min(bytes, memory_left_);
  }
  std::size_t add(PickledValue value) {
    charge(2 * sizeof(value));  // the list of values grows by doubling
    values_.push_back(std::move(value));
    return values_.size() - 1;
  }
  void push(PickledValue value) { stack_.push_back(add(std::move(value))); }
  // The values above the last mark, or the last `count`.
  std::size_t lowest() const { return marks_.empty() ? 0 : marks_.back(); }
  std::vector<std::size_t> pop(std::size_t count) {
    if (stack_.size() - lowest() < count) {
      fail(damaged_pickle("its stack is empty"));
      return std::vector<std::size_t>(count, add({}));
    }
    std::vector<std::size_t> popped(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return popped;
  }
  std::vector<std::size_t> pop_to_mark() {
    if (marks_.empty()) {
      fail(damaged_pickle("a mark is missing"));
      return {};
    }
    std::vector<std::size_t> popped = pop(stack_.size() - marks_.back());
    marks_.pop_back();
    return popped;
  }
  template <typename T>
  const T* as(std::size_t index) const {
    return std::get_if<T>(&values_[index]);
  }
  template <typename T>
  T* top() {
    T* const found = stack_.size() > lowest() ? std::get_if<T>(&values_[stack_.back()]) : nullptr;
    if (found == nullptr) fail(damaged_pickle("an operation on a value of another kind"));
    return found;
  }

  // ---- operations

  void step();
  void step_container(char operation);
  void set_items(const std::vector<std::size_t>& items);
  void memoize(std::uint64_t slot);
  void recall(std::uint64_t slot);
  void call();
  void load_storage();
  std::optional<std::vector<std::int64_t>> numbers(std::size_t index) const;
  // None, or an empty dictionary.
  bool is_nothing(std::size_t index) const {
    const auto* const dictionary = as<PickledDictionary>(index);
    return dictionary != nullptr ? dictionary->items.empty() : as<std::monostate>(index) != nullptr;
  }
  std::optional<PickledTensor> make_tensor(const PickledList& arguments, bool with_type) const;

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  Status status_;
  bool stopped_ = false;
  std::size_t memory_left_;
  std::size_t root_ = 0;
  std::vector<PickledValue> values_;
  std::vector<std::size_t> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, std::size_t> memo_;
};

void PickleReader::memoize(std::uint64_t slot) {
  if (stack_.size() <= lowest()) return fail(damaged_pickle("its stack is empty"));
  charge(64);
  memo_[slot] = stack_.back();
}

void PickleReader::recall(std::uint64_t slot) {
  const auto found = memo_.find(slot);
  if (found == memo_.end()) return fail(damaged_pickle("it refers to a value that it does not have"));
  charge(2 * sizeof(std::size_t));
  stack_.push_back(found->second);
}

void PickleReader::set_items(const std::vector<std::size_t>& items) {
  if (items.size() % 2 != 0) return fail(damaged_pickle("a key without a value"));
  if (auto* const dictionary = top<PickledDictionary>()) {
    for (std::size_t i = 0; i < items.size(); i += 2) dictionary->items.emplace_back(items[i], items[i + 1]);
  }
}

void PickleReader::step_container(char operation) {
  switch (operation) {
    case '}': return push(PickledDictionary{});
    case ']': return push(PickledList{});
    case ')': return push(PickledList{.items = {}, .is_tuple = true});
    case '(': charge(2 * sizeof(std::size_t)); return marks_.push_back(stack_.size());
    case 't': return push(PickledList{.items = pop_to_mark(), .is_tuple = true});
    case '\x85':
    case '\x86':
    case '\x87': {
      const auto count = static_cast<std::size_t>(static_cast<unsigned char>(operation) - 0x84);
      return push(PickledList{.items = pop(count), .is_tuple = true});
    }
    case 'a':
    case 'e': {
      const std::vector<std::size_t> items = operation == 'a' ? pop(1) : pop_to_mark();
      if (auto* const list = top<PickledList>()) list->items.insert(list->items.end(), items.begin(), items.end());
      return;
    }
    case 's': return set_items(pop(2));
    case 'u': return set_items(pop_to_mark());
    default: break;
  }
  fail(refuse_pickle(fmt::format("its pickle has an operation (0x{:02x}) that torch.save does not write for weights",
                                 static_cast<unsigned char>(operation))));
}

void PickleReader::step() {
  const auto operation = static_cast<char>(number(1));
  if (!status_.ok()) return;
  switch (operation) {
    case '\x80':  // the protocol
      if (const auto protocol = number(1); protocol < 2 || protocol > 5) fail(damaged_pickle("an unknown protocol"));
      return;
    case '\x95': return void(take(8));  // a frame, which has no meaning
    case '.':
      root_ = pop(1).front();
      if (!stack_.empty() || !marks_.empty()) fail(damaged_pickle("values are left at its end"));
      stopped_ = true;
      return;
    case 'N': return push(std::monostate{});
    case '\x88': return push(true);
    case '\x89': return push(false);
    case 'K': return push(static_cast<std::int64_t>(number(1)));
    case 'M': return push(static_cast<std::int64_t>(number(2)));
    case 'J': return push(std::int64_t{static_cast<std::int32_t>(number(4))});
    case '\x8a': {  // a longer integer, two's complement
      const std::uint64_t size = number(1);
      if (size > 8) return fail(refuse_pickle("its pickle has an integer of more than 64 bits"));
      const std::uint64_t value = number(size);
      const int shift = 64 - 8 * static_cast<int>(size);
      return push(size == 0 ? std::int64_t{0} : static_cast<std::int64_t>(value << shift) >> shift);
    }
    case 'G': {  // big-endian
      std::uint64_t value = 0;
      for (int i = 0; i < 8; ++i) value = value << 8 | number(1);
      return push(std::bit_cast<double>(value));
    }
    case 'X': return push(text(number(4)));
    case '\x8c': return push(text(number(1)));
    case '\x8d': return push(text(number(8)));
    case 'q': return memoize(number(1));
    case 'r': return memoize(number(4));
    case '\x94': return memoize(memo_.size());
    case 'h': return recall(number(1));
    case 'j': return recall(number(4));
    case 'c': {
      std::string name = line();
      name += "." + line();
      return push(PickledName{std::move(name)});
    }
    case '\x93': {
      const auto parts = pop(2);
      const auto* const module = as<std::string>(parts[0]);
      const auto* const name = as<std::string>(parts[1]);
      if (module == nullptr || name == nullptr || module->size() > kMaxName || name->size() > kMaxName) {
        return fail(damaged_pickle("a name that is not text, or too long"));
      }
      charge(module->size() + name->size());
      return push(PickledName{*module + "." + *name});
    }
    case 'Q': return load_storage();
    case 'R':
    case '\x81': return call();  // of a function, of a class
    case 'b':                    // attributes of an object: a state_dict has the versions of its modules there
      pop(1);
      top<PickledDictionary>();
      return;
    default: return step_container(operation);
  }
}

// ("storage", torch.FloatStorage, "0", "cpu", 12)
void PickleReader::load_storage() {
  const std::size_t index = pop(1).front();
  const auto* const id = as<PickledList>(index);
  if (id == nullptr || id->items.size() != 5) return fail(damaged_pickle("an unknown reference to data"));
  const auto* const kind = as<std::string>(id->items[0]);
  const auto* const type = as<PickledName>(id->items[1]);
  const auto* const key = as<std::string>(id->items[2]);
  const auto* const count = as<std::int64_t>(id->items[4]);
  if (kind == nullptr || *kind != "storage" || type == nullptr || key == nullptr || key->size() > kMaxName ||
      count == nullptr || *count < 0) {
    return fail(damaged_pickle("an unknown reference to data"));
  }
  charge(key->size());
  PickledStorage storage{.key = *key, .count = *count};
  for (const auto& [dtype, name] : kStorageClasses) {
    if (type->name == std::string("torch.") + name) storage.dtype = dtype;
  }
  if (!storage.dtype && type->name != "torch.storage.UntypedStorage" && type->name != "torch.UntypedStorage") {
    return fail(refuse_pickle(fmt::format("it has tensors in a {}, which cannot be loaded", printable(type->name))));
  }
  push(std::move(storage));
}

std::optional<std::vector<std::int64_t>> PickleReader::numbers(std::size_t index) const {
  const auto* const list = as<PickledList>(index);
  if (list == nullptr || list->items.size() > kMaxPickledDimensions) return std::nullopt;
  std::vector<std::int64_t> result;
  for (const std::size_t item : list->items) {
    const auto* const number = as<std::int64_t>(item);
    if (number == nullptr) return std::nullopt;
    result.push_back(*number);
  }
  return result;
}

// (storage, offset, shape, strides, requires_grad, hooks[, type][, metadata])
std::optional<PickledTensor> PickleReader::make_tensor(const PickledList& arguments, bool with_type) const {
  const std::size_t required = with_type ? 7 : 6;
  if (arguments.items.size() < required || arguments.items.size() > required + 1) return std::nullopt;
  const auto* const storage = as<PickledStorage>(arguments.items[0]);
  const auto* const offset = as<std::int64_t>(arguments.items[1]);
  auto shape = numbers(arguments.items[2]);
  auto strides = numbers(arguments.items[3]);
  if (storage == nullptr || offset == nullptr || !shape || !strides) return std::nullopt;
  const Dtype* dtype = nullptr;
  if (with_type) {
    const auto* const name = as<PickledName>(arguments.items[6]);
    for (const auto& [type, type_name] : kTypesByName) {
      if (name != nullptr && name->name == type_name) dtype = &type;
    }
  } else if (storage->dtype) {
    dtype = &*storage->dtype;
  }
  if (dtype == nullptr) return std::nullopt;
  PickledTensor tensor{.storage = storage->key,
                       .dtype = *dtype,
                       .offset = *offset,
                       .shape = std::move(*shape),
                       .strides = std::move(*strides)};
  const std::uint64_t unit = storage->dtype ? element_bytes(*storage->dtype) : 1;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(storage->count), unit, &tensor.storage_bytes)) {
    return std::nullopt;
  }
  if (!fits(tensor, static_cast<std::int64_t>(tensor.storage_bytes / element_bytes(*dtype)))) return std::nullopt;
  return tensor;
}

void PickleReader::call() {
  const auto parts = pop(2);
  const auto* const function = as<PickledName>(parts[0]);
  const auto* const arguments = as<PickledList>(parts[1]);
  if (function == nullptr || arguments == nullptr)
    return fail(damaged_pickle("a call of something that is no function"));
  const std::string& name = function->name;
  if (name == "collections.OrderedDict" && arguments->items.empty()) return push(PickledDictionary{});
  if (name == "torch._utils._rebuild_tensor_v2" || name == "torch._utils._rebuild_tensor_v3") {
    auto tensor = make_tensor(*arguments, name.back() == '3');
    if (!tensor) return fail(damaged_pickle("a tensor with an unknown type, or with elements outside of its data"));
    const std::size_t metadata = name.back() == '3' ? 7 : 6;
    if (arguments->items.size() > metadata && !is_nothing(arguments->items[metadata])) {
      return fail(refuse_pickle(
          "a tensor is conjugated, negated or has other metadata, so that its data are not its numbers: save "
          "tensor.resolve_conj().resolve_neg() instead"));
    }
    charge(tensor->storage.size() + 16 * tensor->shape.size());
    return push(std::move(*tensor));
  }
  if (name == "torch._utils._rebuild_parameter" && !arguments->items.empty() &&
      as<PickledTensor>(arguments->items[0]) != nullptr) {
    return stack_.push_back(arguments->items[0]);
  }
  if (name == "torch.Size" && arguments->items.size() == 1) return stack_.push_back(arguments->items[0]);
  fail(refuse_pickle(
      fmt::format("it contains a {}, and only tensors, numbers, text, lists and dictionaries are loaded: save "
                  "model.state_dict() alone",
                  printable(name))));
}

}  // namespace

Result<Pickle> parse_pickle(std::span<const std::byte> bytes, std::size_t most_memory) {
  return PickleReader(bytes, most_memory).read();
}

const char* kind_of(const PickledValue& value) {
  constexpr std::array kKinds = {"None",   "a boolean",    "a number", "a number",  "text",
                                 "a list", "a dictionary", "a class",  "a storage", "a tensor"};
  static_assert(kKinds.size() == std::variant_size_v<PickledValue>);
  return kKinds[value.index()];
}

const char* storage_class(Dtype dtype) {
  for (const auto& [type, name] : kStorageClasses) {
    if (type == dtype) return name;
  }
  return nullptr;
}

}  // namespace lockstep::checkpoint
