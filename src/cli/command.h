// The subcommands of `lockstep`: one file each, listed in commands.cpp.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string_view>
#include <vector>

namespace lockstep::cli {

// Runs the chosen subcommand once the command line is parsed; returns the exit code.
using Action = std::function<int()>;

// Adds a subcommand and its options to `app`. Parsing sets `chosen` if the user chose this subcommand; the Action owns
// the parsed options.
using AddCommand = void (*)(CLI::App& app, Action& chosen);

void add_run_command(CLI::App& app, Action& chosen);
void add_witness_command(CLI::App& app, Action& chosen);
void add_doctor_command(CLI::App& app, Action& chosen);
void add_top_command(CLI::App& app, Action& chosen);
void add_ps_command(CLI::App& app, Action& chosen);
void add_dump_command(CLI::App& app, Action& chosen);
void add_trace_command(CLI::App& app, Action& chosen);
void add_bench_command(CLI::App& app, Action& chosen);  // only if the benchmarks are built

// All of them, in the order in which --help lists them.
const std::vector<AddCommand>& commands();

// Runs `lockstep` with these arguments. An invalid command line is an error message on stderr and exit code 2.
int run(int argc, const char* const* argv);

}  // namespace lockstep::cli
