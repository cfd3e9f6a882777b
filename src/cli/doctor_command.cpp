// lockstep doctor: looks at this host, and at the network between hosts, before a job starts.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "cli/command.h"
#include "doctor/doctor.h"
#include "doctor/host_list.h"

namespace lockstep::cli {
namespace {

constexpr std::uint16_t kDefaultPort = 29400;

struct DoctorCommandOptions {
  std::string hosts;
  int ranks = 1;
  double timeout = 30;
  bool json = false;
};

int run_doctor(const DoctorCommandOptions& options) {
  doctor::DoctorOptions wanted{.ranks_per_host = options.ranks,
                               .timeout = std::chrono::milliseconds(static_cast<std::int64_t>(options.timeout * 1e3))};
  if (!options.hosts.empty()) {
    auto hosts = doctor::parse_host_list(options.hosts, kDefaultPort);
    if (!hosts.ok()) {
      fmt::print(stderr, "lockstep doctor: --hosts: {}\n", hosts.status().message());
      return 2;
    }
    wanted.hosts = *std::move(hosts);
  }
  const doctor::Diagnosis diagnosis = doctor::examine(wanted);
  const bool colour = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  fmt::print("{}", options.json ? doctor::to_json_text(diagnosis) : doctor::to_text(diagnosis, colour));
  return doctor::exit_code_of(diagnosis);
}

}  // namespace

void add_doctor_command(CLI::App& app, Action& chosen) {
  CLI::App* const command =
      app.add_subcommand("doctor", "Check this host, and the network between hosts, before a job starts");
  const auto options = std::make_shared<DoctorCommandOptions>();
  command
      ->add_option("--hosts", options->hosts,
                   "All hosts of the job, separated by commas, or ranges as gpu[1-4]; run the same command on each of "
                   "them. The port is 29400 unless given")
      ->type_name("HOST[:PORT],...");
  command->add_option("--nproc-per-node", options->ranks, "Ranks on each host")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--timeout", options->timeout, "Seconds to wait for the other hosts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON");
  command->footer("Exit code: 0 if all is green, 1 if a row is yellow, 2 if one is red.");
  command->callback([&chosen, options] { chosen = [options] { return run_doctor(*options); }; });
}

}  // namespace lockstep::cli
