// Weights to and from Python: safetensors files, and files of torch.save(model.state_dict(), path).
//
//   lockstep::load_weights(*model, "pretrained.pt");                       // before DistributedDataParallel(model)
//   lockstep::load_weights(*model, "checkpoint.pt", {.key = "model"});     // of torch.save({"model": ..., "epoch": 3})
//   lockstep::save_weights(*model, "finetuned.safetensors");
//
// Parameters and buffers have the names of Python's state_dict(). Reading executes nothing of what is in a file: a
// pickle may hold tensors, numbers, text, lists and dictionaries, and anything else is refused by name.
//
// These functions are not collective. DistributedDataParallel takes its parameters and buffers from rank 0 when it is
// made: it suffices that rank 0 has loaded them by then. Thread-safe for different models and files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/ddp/model_view.h"

namespace lockstep {

// A prefix of names in a file, and what replaces it.
struct PrefixRename {
  std::string from;
  std::string to;
};

struct LoadWeightsOptions {
  // The dictionary to take, if a file of torch.save has several. Empty: the file is the dictionary.
  std::string key = {};
  // For names that the model does not have, tried in this order until one fits, also one after the other. PyTorch's
  // DistributedDataParallel and torch.compile put these before the names.
  std::vector<PrefixRename> rename = {{"module.", ""}, {"_orig_mod.", ""}};
  // Everything in the model must be in the file, and the other way round. Otherwise what fits is loaded, and the report
  // lists the rest.
  bool strict = true;
  // Convert tensors that have another type in the file, e.g. bf16 to f32. Otherwise they do not fit.
  bool convert = false;
};

struct WeightsReport {
  std::vector<std::string> loaded;      // names in the model
  std::vector<std::string> converted;   // those of them that had another type in the file
  std::vector<std::string> missing;     // in the model, but not in the file
  std::vector<std::string> unexpected;  // in the file, but not in the model; also what is not a tensor
  // Of another shape or type: "fc.weight: Float [10, 4] in the file, Float [12, 4] in the model".
  std::vector<std::string> mismatched;

  // Whether the file and the model had the same tensors.
  bool complete() const { return missing.empty() && unexpected.empty() && mismatched.empty(); }
  // One line: "148 tensors loaded; missing: \"fc.bias\"; ...". Lists the first few of each.
  std::string describe() const;
};

// Reads a safetensors file, an index of several ("model.safetensors.index.json", whose files are beside it), or a file
// of torch.save; the content decides, not the name. All or nothing: throws Error, and the model has not changed, if
// the file cannot be read or is damaged (unavailable, not_found, protocol_error), if it has no dictionary `key`
// (invalid_argument), or if it does not fit and `strict` is set (mismatch, with the report's text).
WeightsReport load_weights(const ModelView& model, const std::string& path, const LoadWeightsOptions& options = {});

enum class WeightsFormat : std::uint8_t {
  by_extension,  // .safetensors; .pt, .pth and .bin: torch
  safetensors,
  torch,  // torch.load(path) returns the state_dict, also with weights_only=True
};
struct SaveWeightsOptions {
  WeightsFormat format = WeightsFormat::by_extension;
};

// Writes parameters and buffers. A file of this name is replaced when the new one is complete and on the disk; after an
// error it is as it was. Throws Error: disk full, no permission, an extension that is not known, a tensor that the
// format cannot hold.
void save_weights(const ModelView& model, const std::string& path, const SaveWeightsOptions& options = {});

}  // namespace lockstep
