// A folder for one test, and small snapshots to put there.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/random.h"
#include "checkpoint/snapshot_writer.h"

namespace lockstep::checkpoint::testing {

class TestFolder {
 public:
  TestFolder() { std::filesystem::create_directory(path_); }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string path(const std::string& name = "") const { return name.empty() ? path_ : path_ + "/" + name; }
  // Names in it, hidden ones included except the lock, sorted.
  std::vector<std::string> names() const { return names_in(path_); }
  static std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().filename() != ".lock") names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  const std::string path_ = (std::filesystem::temp_directory_path() / ("lockstep-snapshots-" + random_hex(8))).string();
};

inline std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void set_content(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Two files: "a.bin" holds `text` in two pieces, "b.bin" holds `text`, "." and the step.
inline Result<std::string> write_small(const std::string& folder, std::int64_t step, const WriteOptions& options = {},
                                       const std::string& text = "content") {
  const std::string b = text + "." + std::to_string(step);
  const std::vector<OutputFile> files = {
      {"a.bin", {bytes_of(text).first(text.size() / 2), bytes_of(text).subspan(text.size() / 2)}},
      {"b.bin", {bytes_of(b)}}};
  Manifest manifest;
  manifest.step = step;
  manifest.values["text"] = text;
  return write_snapshot(folder, manifest, files, options);
}

}  // namespace lockstep::checkpoint::testing
