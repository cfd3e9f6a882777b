#include "doctor/local/system.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/small_file.h"

namespace lockstep::doctor {

std::optional<std::string> System::first_line(const std::string& path) const {
  std::ifstream file(root + path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::vector<std::string> System::lines(const std::string& path) const {
  std::ifstream file(root + path);
  std::vector<std::string> all;
  for (std::string line; std::getline(file, line);) all.push_back(line);
  return all;
}

std::vector<std::string> System::names(const std::string& path) const {
  auto found = list_folder(root + path);
  if (!found.ok()) return {};
  std::erase_if(*found, [](const std::string& name) { return name.starts_with('.'); });
  std::sort(found->begin(), found->end());
  return *std::move(found);
}

std::optional<std::string> System::resolved(const std::string& path) const {
  std::error_code error;
  auto canonical = std::filesystem::canonical(root + path, error);
  if (error) return std::nullopt;
  return canonical.string();
}

}  // namespace lockstep::doctor
