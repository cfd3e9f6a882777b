// Where the checks read: the files of this machine, or those below another folder in tests.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/environment.h"

namespace lockstep::doctor {

struct System {
  std::string root = {};  // put before every path
  Environment environment = process_environment();

  // The first line, or nothing if the file cannot be read.
  std::optional<std::string> first_line(const std::string& path) const;
  // All lines; none if the file cannot be read.
  std::vector<std::string> lines(const std::string& path) const;
  // The names in a folder, sorted; none if there is no such folder.
  std::vector<std::string> names(const std::string& path) const;
  // The file that `path` refers to after all symbolic links, or nothing if there is none.
  std::optional<std::string> resolved(const std::string& path) const;
};

}  // namespace lockstep::doctor
