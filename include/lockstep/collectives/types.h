// Element types, reduction operations, and typed views of memory, as collectives take them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace lockstep {

enum class DType : std::uint8_t { f32, f64, f16, bf16, i8, u8, i32, i64 };

// Integers wrap around in sum and prod; `avg` divides the (wrapped) sum by the number of ranks,
// towards zero. f16 and bf16 are accumulated in f32 and rounded to nearest even at the end.
// min and max give NaN if any input is NaN. The bitwise ones are for integers only.
enum class ReduceOp : std::uint8_t { sum, avg, prod, min, max, bit_and, bit_or, bit_xor };

constexpr std::size_t element_size(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::f64:
    case DType::i64: return 8;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::i8:
    case DType::u8: return 1;
  }
  return 1;
}
std::string_view to_string(DType dtype);  // "f32"
std::string_view to_string(ReduceOp op);  // "sum"
bool is_integer(DType dtype);

// 16-bit floats as bits, for spans over them.
struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, Float16>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, std::int8_t>)
    return DType::i8;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return DType::u8;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::i32;
  else {
    static_assert(std::is_same_v<T, std::int64_t>, "no lockstep::DType for this type");
    return DType::i64;
  }
}

// Elements to read. Does not own them: they must stay valid until the operation is complete.
struct ConstBuffer {
  const void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::f32;

  ConstBuffer() = default;
  ConstBuffer(const void* data_, std::size_t count_, DType dtype_) : data(data_), count(count_), dtype(dtype_) {}
  template <typename T, std::size_t Extent>
  ConstBuffer(std::span<T, Extent> elements)
      : data(elements.data()), count(elements.size()), dtype(dtype_of<std::remove_const_t<T>>()) {}

  std::size_t bytes() const { return count * element_size(dtype); }
};

// Elements to write (or to read and write).
struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::f32;

  Buffer() = default;
  Buffer(void* data_, std::size_t count_, DType dtype_) : data(data_), count(count_), dtype(dtype_) {}
  template <typename T, std::size_t Extent>
  requires(!std::is_const_v<T>) Buffer(std::span<T, Extent> elements)
      : data(elements.data()), count(elements.size()), dtype(dtype_of<T>()) {}

  operator ConstBuffer() const { return {data, count, dtype}; }
  std::size_t bytes() const { return count * element_size(dtype); }
};

}  // namespace lockstep
