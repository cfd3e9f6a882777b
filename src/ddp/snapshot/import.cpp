// Models from TorchScript archives.
#include <fmt/format.h>
#include <torch/serialize/archive.h>

#include "checkpoint/files.h"
#include "ddp/snapshot/tensors.h"
#include "lockstep/checkpoint/snapshot.h"

namespace lockstep::checkpoint {
namespace {

// Deeper than any model; an archive may refer to itself.
constexpr int kMaxArchiveDepth = 200;

// An archive is a tree of modules; its tensors get the names that they have in a model of the same structure.
void add_tensors(torch::serialize::InputArchive& archive, const std::string& prefix, int depth, NamedTensors& tensors) {
  if (depth > kMaxArchiveDepth) return;
  for (const std::string& key : archive.keys()) {
    at::Tensor tensor;
    torch::serialize::InputArchive child;
    if (archive.try_read(key, tensor)) {
      if (tensor.defined()) tensors[prefix + key] = tensor;
    } else if (archive.try_read(key, child)) {
      add_tensors(child, prefix + key + ".", depth + 1, tensors);
    }
  }
}

}  // namespace

void import_torch_archive(const std::string& path, const ModelView& model) {
  NamedTensors tensors;
  // Read here, because torch gives no useful error for a file that it cannot open.
  const FileBytes bytes = value_or_throw(read_file(path));
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(reinterpret_cast<const char*>(bytes.data.get()), bytes.size);
    add_tensors(archive, "", 0, tensors);
  } catch (const std::exception& error) {
    const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
    throw Error({StatusCode::invalid_argument,
                 fmt::format("{} is not an archive that torch::save writes, or is damaged: {}", path,
                             torch_error == nullptr ? error.what() : torch_error->what_without_backtrace())});
  }
  const NamedTensors targets = tensors_of_model(model);
  throw_if_error(check_fits(targets, tensors, path));
  copy_into(targets, tensors);
}

}  // namespace lockstep::checkpoint
