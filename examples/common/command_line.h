// Parses `--name value` pairs. An unknown option or a missing value ends the program with an error message.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "lockstep/ddp/spawn.h"
#include "lockstep/rendezvous/launched.h"

class CommandLine {
 public:
  // `defaults`: all options, with their default values.
  CommandLine(int argc, char** argv, std::map<std::string, std::string> defaults) : values_(std::move(defaults)) {
    for (int i = 1; i < argc; i += 2) {
      const std::string name = argv[i];
      if (i + 1 == argc || values_.count(name) == 0) {
        std::fprintf(stderr, "%s: %s %s. Options:", argv[0], name.c_str(),
                     values_.count(name) == 0 ? "is not an option" : "needs a value");
        for (const auto& [option, value] : values_) std::fprintf(stderr, " %s (%s)", option.c_str(), value.c_str());
        std::fprintf(stderr, "\n");
        std::exit(2);
      }
      values_[name] = argv[i + 1];
    }
  }
  const std::string& text(const std::string& name) const { return values_.at(name); }
  double number(const std::string& name) const {
    char* end = nullptr;
    const double value = std::strtod(text(name).c_str(), &end);
    if (*end != '\0' || text(name).empty()) {
      std::fprintf(stderr, "%s is \"%s\", but must be a number\n", name.c_str(), text(name).c_str());
      std::exit(2);
    }
    return value;
  }
  int integer(const std::string& name) const { return static_cast<int>(number(name)); }

 private:
  std::map<std::string, std::string> values_;
};

// Runs `rank` as one rank of a launcher's job (lockstep run, torchrun, srun, mpirun), or else in `nproc` new processes.
inline int run_ranks(int nproc, const std::function<void()>& rank) {
  try {
    if (lockstep::is_launched()) {
      rank();
    } else {
      lockstep::spawn(nproc, [&](int) { rank(); });
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
