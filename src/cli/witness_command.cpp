// lockstep witness: breaks ties between two halves of a job (membership/witness.h).
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <memory>

#include "base/net/socket.h"
#include "cli/command.h"
#include "membership/witness.h"

namespace lockstep::cli {
namespace {

int serve(const std::string& listen) {
  const auto fail = [](const Status& status) {
    fmt::print(stderr, "lockstep witness: {}\n", status.message());
    return 2;
  };
  // Before threads are started, so that only sigwait() receives them.
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto place = parse_host_port(listen);
  if (!place.ok()) return fail(place.status());
  const auto secret = Secret::from_environment();
  if (!secret.ok()) return fail(secret.status());
  const auto witness = membership::Witness::open({.host = place->host, .port = place->port, .secret = *secret});
  if (!witness.ok()) return fail(witness.status());
  fmt::print("listening on {}\n", (*witness)->address());
  std::fflush(stdout);
  int signal = 0;
  ::sigwait(&signals, &signal);
  return 0;
}

}  // namespace

void add_witness_command(CLI::App& app, Action& chosen) {
  CLI::App* const command =
      app.add_subcommand("witness", "Decide which half of a job continues when two hosts lose each other");
  const auto listen = std::make_shared<std::string>("0.0.0.0:29401");
  command->add_option("--listen", *listen, "address of this machine, HOST:PORT; port 0: any")->capture_default_str();
  command->callback([&chosen, listen] { chosen = [listen] { return serve(*listen); }; });
}

}  // namespace lockstep::cli
