// Named tensors as safetensors files, and what makes a file fit a model.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/snapshot_writer.h"
#include "lockstep/base/status.h"
#include "lockstep/ddp/model_view.h"

namespace lockstep::checkpoint {

using NamedTensors = std::map<std::string, at::Tensor>;
// Names, types and shapes, by name: of tensors that may not be here yet.
using TensorInfos = std::map<std::string, TensorInfo>;

// Parameters and buffers under the names that Python's state_dict() has. They share the model's memory.
NamedTensors tensors_of_model(const ModelView& model);

// The content of a safetensors file: head and tensors in memory of its own, or shared with what was given.
class TensorFile {
 public:
  // copy: later changes of `tensors` do not matter. Memory of `reuse` (a file that is no longer needed) is used again
  // if it fits. Without it, tensors that are contiguous and on the CPU share their memory with this object. Throws
  // Error, which names a tensor that the format cannot hold.
  static TensorFile of(const NamedTensors& tensors, bool copy, TensorFile reuse = {},
                       const Metadata& metadata = {{"format", "pt"}});
  // The pieces point into this object.
  OutputFile output(const std::string& name) const;
  const std::string& head() const { return layout_.head; }
  // Contiguous, on the CPU, in the order of their data.
  std::vector<at::Tensor> tensors_in_order() const;
  // The whole file.
  std::string bytes() const;

 private:
  NamedTensors tensors_;  // contiguous, on the CPU
  SafetensorsLayout layout_;
  std::vector<std::string> order_;  // names, as the data follows
};

// Tensors over the bytes of a parsed file, which must outlive them. Throws Error for a type that this LibTorch lacks.
NamedTensors tensors_of_file(const Safetensors& file);
TensorInfos infos_of_file(const Safetensors& file);
TensorInfos infos_of_head(const SafetensorsHead& head);
// Throws Error, which names the tensor, if files cannot hold it.
TensorInfo info_of(const std::string& name, const at::Tensor& tensor);
// LibTorch's type; throws Error if this LibTorch lacks it.
at::ScalarType type_in_torch(const TensorInfo& info);
// "Float [2, 3]": in the words of the model's source. An unknown type has the name that files have for it.
std::string describe(const at::Tensor& tensor);
std::string describe(const TensorInfo& info);

// Ok if `from` has exactly the model's tensors, with their shapes and types. Else mismatch: `where` is of another
// model, and which tensors differ how.
Status check_fits(const NamedTensors& model, const TensorInfos& from, const std::string& where);
Status check_fits(const NamedTensors& model, const NamedTensors& from, const std::string& where);
// After check_fits().
void copy_into(const NamedTensors& model, const NamedTensors& from);

}  // namespace lockstep::checkpoint
