// lockstep run: starts the ranks of a job. launch/options/options.h parses the options, not CLI11: they are those of
// torchrun, and everything from the program's name on belongs to the program.
#include <fmt/format.h>

#include "cli/command.h"
#include "launch/agent.h"
#include "launch/options/core_binding.h"
#include "launch/options/options.h"

namespace lockstep::cli {
namespace {

int run_with(const std::vector<std::string>& arguments) {
  const Environment environment = process_environment();
  const auto options =
      launch::parse_run_options(arguments, environment, static_cast<int>(launch::usable_cores().size()));
  if (!options.ok()) {
    fmt::print(stderr, "lockstep run: {}\nSee lockstep run --help.\n", options.status().message());
    return launch::kUsageCode;
  }
  if (options->help) {
    fmt::print("{}", launch::run_help());
    return 0;
  }
  return launch::run_job(*options, environment);
}

}  // namespace

void add_run_command(CLI::App& app, Action& chosen) {
  CLI::App* const command = app.add_subcommand("run", "Start the ranks of a job, and report why a rank failed");
  // CLI11 must not parse the arguments that follow.
  command->set_help_flag();
  command->prefix_command();
  command->callback(
      [&chosen, command] { chosen = [arguments = command->remaining()] { return run_with(arguments); }; });
}

}  // namespace lockstep::cli
