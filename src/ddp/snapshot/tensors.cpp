#include "ddp/snapshot/tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "ddp/torch_compat.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t kListedDifferences = 8;

constexpr std::pair<std::optional<at::ScalarType>, Dtype> kTypePairs[] = {
    {at::kBool, Dtype::boolean},
    {at::kByte, Dtype::u8},
    {at::kChar, Dtype::i8},
    {at::kShort, Dtype::i16},
    {at::kHalf, Dtype::f16},
    {at::kBFloat16, Dtype::bf16},
    {at::kInt, Dtype::i32},
    {at::kFloat, Dtype::f32},
    {at::kLong, Dtype::i64},
    {at::kDouble, Dtype::f64},
    {at::kComplexFloat, Dtype::c64},
    {compat::kFloat8_e4m3fn, Dtype::f8_e4m3},
    {compat::kFloat8_e5m2, Dtype::f8_e5m2},
};

std::optional<Dtype> dtype_in_file(at::ScalarType type) {
  for (const auto& [torch_type, dtype] : kTypePairs) {
    if (torch_type == type) return dtype;
  }
  return std::nullopt;
}

std::optional<at::ScalarType> find_type(Dtype wanted) {
  for (const auto& [torch_type, dtype] : kTypePairs) {
    if (dtype == wanted) return torch_type;
  }
  return std::nullopt;
}

at::Tensor own_copy(const at::Tensor& tensor, const NamedTensors& reuse, const std::string& name) {
  const auto old = reuse.find(name);
  const bool fits =
      old != reuse.end() && old->second.scalar_type() == tensor.scalar_type() && old->second.sizes() == tensor.sizes();
  at::Tensor copy =
      fits ? old->second : at::empty(tensor.sizes(), tensor.options().device(at::kCPU).requires_grad(false));
  return copy.copy_(tensor);
}

}  // namespace

TensorInfo info_of(const std::string& name, const at::Tensor& tensor) {
  const auto dtype = dtype_in_file(tensor.scalar_type());
  if (tensor.layout() != at::kStrided || tensor.is_quantized() || !dtype) {
    throw Error({StatusCode::invalid_argument,
                 fmt::format("tensor \"{}\" ({}, {}) cannot be saved: safetensors files hold dense tensors of the "
                             "usual types; save .to_dense(), .int_repr() or view_as_real() of it",
                             name, c10::toString(tensor.scalar_type()),
                             tensor.layout() == at::kStrided ? "dense" : "not dense")});
  }
  return {name, *dtype, tensor.sizes().vec()};
}

at::ScalarType type_in_torch(const TensorInfo& info) {
  if (const auto type = find_type(info.dtype)) return *type;
  throw Error({StatusCode::invalid_argument, fmt::format("tensor \"{}\" is {}, a type that this LibTorch does not have",
                                                         printable(info.name), info.describe())});
}

std::string describe(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes().vec(), ", "));
}

std::string describe(const TensorInfo& info) {
  const auto type = find_type(info.dtype);
  if (!type) return info.describe();
  return fmt::format("{} [{}]", c10::toString(*type), fmt::join(info.shape, ", "));
}

NamedTensors tensors_of_model(const ModelView& model) {
  NamedTensors tensors;
  for (const auto& [name, parameter] : model.named_parameters()) tensors[name] = parameter;
  for (const auto& [name, buffer] : model.named_buffers()) tensors[name] = buffer;
  return tensors;
}

TensorFile TensorFile::of(const NamedTensors& tensors, bool copy, TensorFile reuse, const Metadata& metadata) {
  at::NoGradGuard no_grad;
  TensorFile file;
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) {
    infos.push_back(info_of(name, tensor));
    file.tensors_[name] =
        copy ? own_copy(tensor.detach(), reuse.tensors_, name) : tensor.detach().to(at::kCPU).contiguous();
  }
  file.layout_ = value_or_throw(lay_out_safetensors(infos, metadata));
  for (const std::size_t index : file.layout_.order) file.order_.push_back(infos[index].name);
  return file;
}

OutputFile TensorFile::output(const std::string& name) const {
  OutputFile file{name, {std::as_bytes(std::span(layout_.head.data(), layout_.head.size()))}};
  for (const std::string& tensor_name : order_) {
    const at::Tensor& tensor = tensors_.at(tensor_name);
    file.pieces.push_back({static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()});
  }
  return file;
}

std::vector<at::Tensor> TensorFile::tensors_in_order() const {
  std::vector<at::Tensor> tensors;
  for (const std::string& name : order_) tensors.push_back(tensors_.at(name));
  return tensors;
}

std::string TensorFile::bytes() const {
  std::string bytes;
  bytes.reserve(layout_.head.size() + layout_.data_bytes);
  for (const auto& piece : output("").pieces) bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  return bytes;
}

TensorInfos infos_of_file(const Safetensors& file) {
  TensorInfos infos;
  for (const auto& [name, entry] : file.tensors) infos[name] = entry.info;
  return infos;
}

TensorInfos infos_of_head(const SafetensorsHead& head) {
  TensorInfos infos;
  for (const SafetensorsHead::Entry& entry : head.entries) infos[entry.info.name] = entry.info;
  return infos;
}

NamedTensors tensors_of_file(const Safetensors& file) {
  NamedTensors tensors;
  for (const auto& [name, entry] : file.tensors) {
    const auto options = at::TensorOptions().dtype(type_in_torch(entry.info));
    auto* const data = const_cast<std::byte*>(entry.data.data());  // only read
    if (reinterpret_cast<std::uintptr_t>(data) % element_bytes(entry.info.dtype) == 0 && !entry.data.empty()) {
      tensors[name] = at::from_blob(data, entry.info.shape, options);
    } else {  // another program's file need not be aligned
      tensors[name] = at::empty(entry.info.shape, options);
      if (!entry.data.empty()) std::memcpy(tensors[name].data_ptr(), data, entry.data.size());
    }
  }
  return tensors;
}

Status check_fits(const NamedTensors& model, const TensorInfos& from, const std::string& where) {
  std::vector<std::string> differences;
  for (const auto& [name, tensor] : model) {
    const auto found = from.find(name);
    if (found == from.end()) {
      differences.push_back(fmt::format("\"{}\" ({} in the model) is missing there", name, describe(tensor)));
    } else if (found->second.shape != tensor.sizes().vec() || find_type(found->second.dtype) != tensor.scalar_type()) {
      differences.push_back(
          fmt::format("\"{}\" is {} there and {} in the model", name, describe(found->second), describe(tensor)));
    }
  }
  for (const auto& [name, info] : from) {
    if (!model.contains(name))
      differences.push_back(fmt::format("\"{}\" ({}) is not in the model", printable(name), describe(info)));
  }
  if (differences.empty()) return {};
  const std::size_t count = differences.size();
  if (count > kListedDifferences) {
    differences.resize(kListedDifferences);
    differences.push_back(fmt::format("and {} more", count - kListedDifferences));
  }
  return Status(StatusCode::mismatch, fmt::format("{} is of another model: {}", where, fmt::join(differences, "; ")));
}

Status check_fits(const NamedTensors& model, const NamedTensors& from, const std::string& where) {
  TensorInfos infos;
  for (const auto& [name, tensor] : from) infos[name] = info_of(name, tensor);
  return check_fits(model, infos, where);
}

void copy_into(const NamedTensors& model, const NamedTensors& from) {
  at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : model) at::Tensor(tensor).copy_(from.at(name));
}

}  // namespace lockstep::checkpoint
