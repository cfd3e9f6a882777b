#include "lockstep/ddp/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <span>

#include "base/printable.h"
#include "checkpoint/torch_file/torch_file.h"
#include "ddp/weights/weights_file.h"

namespace lockstep {
namespace {

using checkpoint::describe;
using TensorsByName = checkpoint::NamedTensors;

constexpr std::size_t kListedNames = 8;
constexpr int kMaxRenames = 8;  // of one name; rules may lead back to where they began

std::string name_in_model(const std::string& name, const TensorsByName& model, const LoadWeightsOptions& options) {
  std::string renamed = name;
  for (int i = 0; i < kMaxRenames && !model.contains(renamed); ++i) {
    const auto rule =
        std::find_if(options.rename.begin(), options.rename.end(),
                     [&renamed](const PrefixRename& candidate) { return renamed.starts_with(candidate.from); });
    if (rule == options.rename.end()) break;
    renamed = rule->to + renamed.substr(rule->from.size());
  }
  return model.contains(renamed) ? renamed : name;
}

void list(std::vector<std::string>& parts, const char* title, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::vector<std::string> shown(names.begin(),
                                 names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kListedNames)));
  if (names.size() > kListedNames) shown.push_back(fmt::format("and {} more", names.size() - kListedNames));
  parts.push_back(fmt::format("{}: {}", title, fmt::join(shown, ", ")));
}

// What to copy where, and what does not fit.
struct Assignment {
  WeightsReport report;
  TensorsByName sources;  // by the name in the model
};

Assignment assign(const TensorsByName& model, const detail::WeightsFile& file, const std::string& path,
                  const LoadWeightsOptions& options) {
  Assignment result;
  std::map<std::string, std::string> taken_from;
  for (const auto& [name, tensor] : file.tensors) {
    const std::string target = name_in_model(name, model, options);
    const auto found = model.find(target);
    if (found == model.end()) {
      result.report.unexpected.push_back(printable(name));
      continue;
    }
    if (const auto [other, first] = taken_from.emplace(target, name); !first) {
      throw Error({StatusCode::mismatch, fmt::format("{}: both \"{}\" and \"{}\" are \"{}\" in the model", path,
                                                     printable(other->second), printable(name), target)});
    }
    const at::Tensor& parameter = found->second;
    const bool same_type = tensor.scalar_type() == parameter.scalar_type();
    if (tensor.sizes() != parameter.sizes() || (!same_type && !options.convert)) {
      result.report.mismatched.push_back(
          fmt::format("{}: {} in the file, {} in the model", target, describe(tensor), describe(parameter)));
      continue;
    }
    if (!same_type) result.report.converted.push_back(target);
    result.sources.emplace(target, tensor);
  }
  for (const auto& [name, kind] : file.others) {
    result.report.unexpected.push_back(fmt::format("{} ({})", printable(name), kind));
  }
  for (const auto& [name, parameter] : model) {
    if (!taken_from.contains(name)) result.report.missing.push_back(name);
  }
  return result;
}

WeightsFormat format_of(const std::string& path, WeightsFormat chosen) {
  if (chosen != WeightsFormat::by_extension) return chosen;
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".safetensors") return WeightsFormat::safetensors;
  if (extension == ".pt" || extension == ".pth" || extension == ".bin") return WeightsFormat::torch;
  throw Error(
      {StatusCode::invalid_argument,
       fmt::format("save_weights: \"{}\" does not end with .safetensors, .pt, .pth or .bin: rename it, or choose "
                   "SaveWeightsOptions::format",
                   path)});
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Removes the file unless it was renamed.
struct TemporaryFile {
  std::filesystem::path path;
  ~TemporaryFile() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove(path, ignored);
  }
};

void replace_file(const std::string& path, const checkpoint::Pieces& pieces) {
  const std::filesystem::path target(path);
  const std::string folder = target.has_parent_path() ? target.parent_path().string() : ".";
  const std::string name = fmt::format(".{}.{}.partial", target.filename().string(), ::getpid());
  TemporaryFile temporary{std::filesystem::path(folder) / name};
  std::error_code ignored;
  std::filesystem::remove(temporary.path, ignored);  // of a process with the same number, long ago
  static_cast<void>(value_or_throw(checkpoint::write_file(folder, name, pieces)));
  std::error_code error;
  std::filesystem::rename(temporary.path, target, error);
  if (error) throw Error(checkpoint::file_error(error.value(), "written", path));
  temporary.path.clear();
  throw_if_error(checkpoint::sync_folder(folder));
}

void save_torch(const TensorsByName& tensors, const std::string& path) {
  std::vector<checkpoint::TensorInfo> infos;
  std::vector<at::Tensor> copies;  // contiguous, on the CPU
  std::vector<std::span<const std::byte>> data;
  for (const auto& [name, tensor] : tensors) {
    infos.push_back(checkpoint::info_of(name, tensor));
    copies.push_back(tensor.detach().to(at::kCPU).contiguous());
    data.emplace_back(static_cast<const std::byte*>(copies.back().data_ptr()), copies.back().nbytes());
  }
  const auto layout = value_or_throw(checkpoint::lay_out_torch_file(infos, data));
  checkpoint::Pieces pieces;
  for (std::size_t i = 0; i < data.size(); ++i) {
    pieces.push_back(bytes_of(layout.heads[i]));
    pieces.push_back(data[i]);
  }
  pieces.push_back(bytes_of(layout.tail));
  replace_file(path, pieces);
}

}  // namespace

std::string WeightsReport::describe() const {
  std::vector<std::string> parts = {fmt::format("{} tensors loaded", loaded.size())};
  list(parts, "converted", converted);
  list(parts, "missing in the file", missing);
  list(parts, "not in the model", unexpected);
  list(parts, "different", mismatched);
  return fmt::format("{}", fmt::join(parts, "; "));
}

WeightsReport load_weights(const ModelView& model, const std::string& path, const LoadWeightsOptions& options) {
  const TensorsByName targets = checkpoint::tensors_of_model(model);
  const detail::WeightsFile file = detail::WeightsFile::read(path, options.key);
  Assignment assignment = assign(targets, file, path, options);
  WeightsReport& report = assignment.report;
  if (options.strict && !report.complete()) {
    throw Error(
        {StatusCode::mismatch,
         fmt::format("{} does not fit the model, and nothing was loaded; {}. With LoadWeightsOptions::strict = "
                     "false, {} tensors that fit would be loaded",
                     path, report.describe().substr(report.describe().find(';') + 2), assignment.sources.size())});
  }
  at::NoGradGuard no_grad;
  for (const auto& [name, source] : assignment.sources) {
    at::Tensor(targets.at(name)).copy_(source);
    report.loaded.push_back(name);
  }
  return std::move(report);
}

void save_weights(const ModelView& model, const std::string& path, const SaveWeightsOptions& options) {
  const WeightsFormat format = format_of(path, options.format);
  const TensorsByName tensors = checkpoint::tensors_of_model(model);
  if (format == WeightsFormat::torch) return save_torch(tensors, path);
  const auto file = checkpoint::TensorFile::of(tensors, /*copy=*/false);
  replace_file(path, file.output("").pieces);
}

}  // namespace lockstep
