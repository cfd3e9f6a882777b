#include <fmt/format.h>

#include "cli/command.h"
#include "lockstep/version.h"

namespace lockstep::cli {

const std::vector<AddCommand>& commands() {
  static const std::vector<AddCommand> all = {
      add_run_command,   add_doctor_command, add_witness_command, add_ps_command,
      add_top_command,   add_dump_command,   add_trace_command,
#ifdef LOCKSTEP_WITH_BENCH
      add_bench_command,
#endif
  };
  return all;
}

int run(int argc, const char* const* argv) {
  CLI::App app("Distributed data-parallel training for C++ and LibTorch", "lockstep");
  app.set_version_flag("--version", "lockstep " LOCKSTEP_VERSION);
  Action chosen;
  for (const AddCommand add : commands()) add(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "lockstep: {}\nSee lockstep --help.\n", error.what());
    return 2;
  }
  // Not CLI11's require_subcommand: it would report a misspelt subcommand as missing too, without naming it.
  if (!chosen) {
    fmt::print(stderr, "lockstep: a subcommand is missing\nSee lockstep --help.\n");
    return 2;
  }
  return chosen();
}

}  // namespace lockstep::cli
