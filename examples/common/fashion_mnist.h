// Fashion-MNIST from Debian's package dataset-fashion-mnist: 60,000 and 10,000 grey images of 28 x 28 in
// ten classes, as compressed IDX files.
#pragma once

#include <torch/torch.h>
#include <zlib.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

class FashionMnist : public torch::data::datasets::Dataset<FashionMnist> {
 public:
  static constexpr const char* kFolder = "/usr/share/datasets/fashion-mnist";

  explicit FashionMnist(bool train, const std::string& folder = kFolder) {
    const std::string stem = folder + (train ? "/train-" : "/t10k-");
    images_ = read(stem + "images-idx3-ubyte.gz", 16)
                  .view({-1, 1, 28, 28})
                  .to(torch::kFloat)
                  .div_(255)
                  .sub_(0.286)
                  .div_(0.353);
    labels_ = read(stem + "labels-idx1-ubyte.gz", 8).to(torch::kLong);
  }
  torch::data::Example<> get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {images_[i], labels_[i]};
  }
  torch::optional<std::size_t> size() const override { return static_cast<std::size_t>(labels_.size(0)); }

  // A whole batch at once: far cheaper than stacking single images.
  torch::data::Example<> batch(const std::vector<std::size_t>& indices) const {
    const std::vector<std::int64_t> wanted(indices.begin(), indices.end());
    const torch::Tensor index = torch::tensor(wanted, torch::kLong);
    return {images_.index_select(0, index), labels_.index_select(0, index)};
  }
  const torch::Tensor& images() const { return images_; }
  const torch::Tensor& labels() const { return labels_; }

 private:
  static torch::Tensor read(const std::string& path, std::size_t header) {
    const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
    if (!file) throw std::runtime_error("cannot read " + path + "; Debian: apt-get install dataset-fashion-mnist");
    std::vector<std::uint8_t> bytes;
    std::vector<std::uint8_t> block(1 << 20);
    for (int got; (got = gzread(file.get(), block.data(), static_cast<unsigned>(block.size()))) > 0;) {
      bytes.insert(bytes.end(), block.begin(), block.begin() + got);
    }
    if (bytes.size() <= header) throw std::runtime_error(path + " is not an IDX file");
    return torch::from_blob(bytes.data() + header, {static_cast<std::int64_t>(bytes.size() - header)}, torch::kByte)
        .clone();
  }

  torch::Tensor images_;
  torch::Tensor labels_;
};
