// The subcommands of `lockstep`: one file each, listed in commands.cpp.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string_view>
#include <vector>

namespace lockstep::cli {

// What runs once the command line was understood; returns the exit code.
using Action = std::function<int()>;

// Adds a subcommand to `app`, with its options; what is parsed lives as long as the Action.
// `chosen` is to be set when the user chose it.
using AddCommand = void (*)(CLI::App& app, Action& chosen);

void add_run_command(CLI::App& app, Action& chosen);
void add_bench_command(CLI::App& app, Action& chosen);  // only where the benchmarks are built

// All of them, in the order in which --help lists them.
const std::vector<AddCommand>& commands();

// Runs `lockstep` with these arguments. Nonsense on the command line is a sentence and exit code 2.
int run(int argc, const char* const* argv);

}  // namespace lockstep::cli
