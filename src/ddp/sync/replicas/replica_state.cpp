#include "ddp/sync/replicas/replica_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "ddp/sync/buckets/bucket.h"
#include "ddp/sync/replicas/tensor_broadcast.h"

namespace lockstep::detail {

namespace {

// The kind of device, and which one of the model's: each rank has devices of its own.
std::string describe_device(const at::Device& device, std::vector<at::Device>& seen) {
  if (device.is_cpu()) return "";
  const auto found = std::find(seen.begin(), seen.end(), device);
  const auto number = found - seen.begin();
  if (found == seen.end()) seen.push_back(device);
  return fmt::format(", on {}{}", c10::DeviceTypeName(device.type(), /*lower_case=*/true),
                     number == 0 ? "" : fmt::format(" (device {} of the model)", number + 1));
}

std::string describe(const char* kind, const std::pair<std::string, at::Tensor>& item, std::vector<at::Device>& seen) {
  const at::Tensor& tensor = item.second;
  const std::string strides = tensor.is_contiguous() || !tensor.requires_grad()
                                  ? ""
                                  : fmt::format(", gradient strides [{}]", fmt::join(gradient_strides(tensor), ", "));
  return fmt::format("{} \"{}\" of shape [{}], type {}{}{}{}", kind, item.first,
                     fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "), c10::toString(tensor.scalar_type()),
                     describe_device(tensor.device(), seen), tensor.requires_grad() ? ", with gradient" : "", strides);
}

std::vector<std::string> describe_all(const NamedTensors& parameters, const NamedTensors& buffers) {
  std::vector<std::string> result;
  std::vector<at::Device> seen;
  for (const auto& item : parameters) result.push_back(describe("parameter", item, seen));
  for (const auto& item : buffers) result.push_back(describe("buffer", item, seen));
  return result;
}

// Every rank's text, in rank order.
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text) {
  const auto world = static_cast<std::size_t>(group.size());
  at::Tensor length = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong);
  at::Tensor lengths = at::empty({group.size()}, at::kLong);
  group.all_gather(length, lengths, {}).wait();
  std::vector<std::size_t> counts(world);
  std::size_t total = 0;
  for (std::size_t r = 0; r < world; ++r)
    total += counts[r] = static_cast<std::size_t>(lengths.data_ptr<std::int64_t>()[r]);
  at::Tensor mine = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(mine.data_ptr(), text.data(), text.size());
  at::Tensor all = at::empty({static_cast<std::int64_t>(total)}, at::kByte);
  group.all_gather_v(mine, all, counts, {}).wait();
  std::vector<std::string> texts;
  const char* next = static_cast<const char*>(all.data_ptr());
  for (std::size_t r = 0; r < world; ++r) {
    texts.emplace_back(next, counts[r]);
    next += counts[r];
  }
  return texts;
}

// Gathers one hash per item from every rank: hashes[r * items + i].
std::vector<std::uint64_t> gather_hashes(ProcessGroup& group, const std::vector<std::uint64_t>& mine) {
  at::Tensor input = at::empty({static_cast<std::int64_t>(mine.size())}, at::kLong);
  if (!mine.empty()) std::memcpy(input.data_ptr(), mine.data(), mine.size() * sizeof(std::uint64_t));
  at::Tensor output = at::empty({static_cast<std::int64_t>(mine.size()) * group.size()}, at::kLong);
  group.all_gather(input, output, {}).wait();
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(group.size()));
  if (!all.empty()) std::memcpy(all.data(), output.data_ptr(), all.size() * sizeof(std::uint64_t));
  return all;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    result.push_back(text.substr(begin, end - begin));
  }
  return result;
}

std::uint64_t hash_of(const at::Tensor& tensor) {
  const at::Tensor block = tensor.detach().cpu().contiguous();
  return XXH3_64bits(block.data_ptr(), block.nbytes());
}

}  // namespace

void check_same_model(ProcessGroup& group, const NamedTensors& parameters, const NamedTensors& buffers) {
  if (group.size() == 1) return;
  const std::string mine = fmt::format("{}\n", fmt::join(describe_all(parameters, buffers), "\n"));
  const std::vector<std::uint64_t> hashes = gather_hashes(group, {XXH3_64bits(mine.data(), mine.size())});
  int other = 0;
  while (other < group.size() && hashes[other] == hashes[0]) ++other;
  if (other == group.size()) return;

  const std::vector<std::string> texts = gather_texts(group, mine);
  const std::vector<std::string> first = lines(texts[0]);
  const std::vector<std::string> second = lines(texts[other]);
  std::size_t at = 0;
  while (at < first.size() && at < second.size() && first[at] == second[at]) ++at;
  const auto side = [at](const std::vector<std::string>& list) {
    return at < list.size() ? list[at] : fmt::format("nothing more ({} tensors)", list.size());
  };
  throw Error(
      {StatusCode::mismatch,
       fmt::format("DistributedDataParallel: the ranks' models differ. At position {}, rank 0 has {}, but rank {} has "
                   "{}. Build the same model on every rank",
                   at, side(first), other, side(second))});
}

std::size_t broadcast_differing(ProcessGroup& group, const std::vector<at::Tensor>& tensors, int root) {
  if (group.size() == 1 || tensors.empty()) return 0;
  std::vector<std::uint64_t> mine;
  for (const at::Tensor& tensor : tensors) mine.push_back(hash_of(tensor));
  const std::vector<std::uint64_t> all = gather_hashes(group, mine);
  std::vector<at::Tensor> differing;
  for (std::size_t item = 0; item < tensors.size(); ++item) {
    bool differs = false;
    for (std::size_t i = item; i < all.size(); i += tensors.size()) differs = differs || all[i] != all[item];
    if (differs) differing.push_back(tensors[item]);
  }
  TensorBroadcast(group, differing).run(root);
  return differing.size();
}

void check_identical(ProcessGroup& group, const NamedTensors& parameters, const NamedTensors& buffers) {
  std::vector<std::uint64_t> mine;
  for (const auto& item : parameters) mine.push_back(hash_of(item.second));
  for (const auto& item : buffers) mine.push_back(hash_of(item.second));
  const std::vector<std::uint64_t> all = gather_hashes(group, mine);
  for (std::size_t item = 0; item < mine.size(); ++item) {
    std::vector<int> different;
    for (int r = 1; r < group.size(); ++r) {
      if (all[static_cast<std::size_t>(r) * mine.size() + item] != all[item]) different.push_back(r);
    }
    if (different.empty()) continue;
    const bool is_parameter = item < parameters.size();
    const auto& name = is_parameter ? parameters[item].first : buffers[item - parameters.size()].first;
    throw Error(
        {StatusCode::mismatch,
         fmt::format("the replicas are not in sync: {} \"{}\" of rank{} {} differs from rank 0's. Something changed it "
                     "outside of DDP, or ranks run different optimizers",
                     is_parameter ? "parameter" : "buffer", name, different.size() > 1 ? "s" : "",
                     fmt::join(different, ", "))});
  }
}

}  // namespace lockstep::detail
