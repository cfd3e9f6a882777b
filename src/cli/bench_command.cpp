// lockstep bench: compares the engine with its peers and with the machine's limits.
#include <memory>

#include "bench/driver/ddp/ddp.h"
#include "bench/driver/elastic/elastic.h"
#include "bench/driver/measure.h"
#include "bench/driver/options.h"
#include "bench/threads_scaling.h"
#include "cli/command.h"

namespace lockstep::cli {
namespace {

using bench::BenchOptions;

// An option whose text is read by `parse`; what it does not accept is a CLI::ValidationError.
template <typename Parse, typename T>
CLI::Option* add_parsed(CLI::App& command, const std::string& name, Parse parse, T& target, const std::string& help) {
  return command.add_option_function<std::string>(
      name,
      [name, parse, &target](const std::string& text) {
        auto result = parse(text);
        if (!result.ok()) throw CLI::ValidationError(name, result.status().message());
        target = *std::move(result);
      },
      help);
}

void add_hosts(CLI::App& command, bench::HostLayout& hosts, std::string& rate, const std::string& verb) {
  add_parsed(command, "--hosts", bench::parse_hosts, hosts,
             verb + " hosts made of network namespaces (needs root): hosts and ranks on each")
      ->type_name("HOSTS:RANKS");
  add_parsed(command, "--rate", bench::parse_rate, rate, "Shape the links between these hosts, as 1gbit")
      ->type_name("RATE");
}

const char* help_of(bench::Collective collective) {
  switch (collective) {
    case bench::Collective::all_reduce: return "Every rank gets the sum of all";
    case bench::Collective::broadcast: return "Every rank gets rank 0's buffer";
    case bench::Collective::all_gather: return "Every rank gets the parts of all";
    case bench::Collective::reduce_scatter: return "Every rank gets its part of the sum of all";
    case bench::Collective::barrier: return "Every rank waits for all";
  }
  return "";
}

void add_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--nproc", options.nproc, "Ranks on this host")->capture_default_str();
  add_parsed(command, "--bytes", bench::parse_size_range, options.bytes, "Sizes from MIN to MAX, as 8, 64K, 25M, 1G")
      ->type_name("MIN:MAX")
      ->default_str("8:128M");
  command.add_option("--step", options.step, "Factor from one size to the next")->capture_default_str();
  add_parsed(command, "--dtype", bench::parse_dtype, options.dtype,
             "Element type: f32, f64, f16, bf16, i8, u8, i32, i64")
      ->type_name("TYPE")
      ->default_str("f32");
  add_parsed(command, "--memory", bench::parse_memory, options.memories,
             "Lockstep's buffers: registered, private, or both in turn")
      ->type_name("KIND")
      ->default_str("both");
  command.add_option("--peer", options.peers, "Compare with gloo, openmpi or mpich; may be repeated")
      ->type_name("NAME");
  command.add_option("--rounds", options.rounds, "Rounds; each measures every engine, in random order")
      ->capture_default_str();
  command.add_option("--iterations", options.iterations, "Timed operations per round (default: by size, 200 to 5)");
  command.add_flag("--warm", options.warm, "Reuse one buffer instead of rotating through more than the cache");
  command.add_option("--json", options.json_file, "Also write the rows to this file")->type_name("FILE");
  add_hosts(command, options.hosts, options.rate, "Run on");
}

void add_threads(CLI::App& command, Action& chosen) {
  const auto options = std::make_shared<bench::ThreadsOptions>();
  CLI::App* const threads =
      command.add_subcommand("threads", "All-reduce between threads of one process, as they grow");
  threads->add_option("--max-ranks", options->max_ranks, "Double the ranks from 2 up to this")->capture_default_str();
  threads->add_option("--rounds", options->rounds, "Rounds, of which the median is printed")->capture_default_str();
  threads->callback([&chosen, options] { chosen = [options] { return bench::run_threads_scaling(*options); }; });
}

void add_ddp(CLI::App& command, Action& chosen) {
  const auto options = std::make_shared<bench::DdpBenchOptions>();
  CLI::App* const ddp =
      command.add_subcommand("ddp", "A training step with DDP on several engines, without it, and in PyTorch");
  ddp->add_option("--model", options->model, "mlp (18.9 M parameters), cnn or gpt")->capture_default_str();
  ddp->add_option("--batch", options->batch, "Samples per rank")->capture_default_str();
  ddp->add_option("--nproc", options->nproc, "Ranks on this host, one thread each")->capture_default_str();
  ddp->add_option("--rounds", options->rounds, "Rounds; each runs every engine, in random order")
      ->capture_default_str();
  ddp->add_option("--steps", options->steps, "Steps per round, of which the median counts")->capture_default_str();
  ddp->add_option("--backend", options->backends,
                  "Engine below DDP: lockstep, gloo, openmpi or mpich; may be repeated, the first is compared with all")
      ->type_name("NAME")
      ->default_str("lockstep");
  ddp->add_option("--peer", options->peers, "Compare with torch: PyTorch's DDP over Gloo")->type_name("NAME");
  add_hosts(*ddp, options->hosts, options->rate, "Run on");
  ddp->add_option("--json", options->json_file, "Also write the rows to this file")->type_name("FILE");
  ddp->callback([&chosen, options] { chosen = [options] { return bench::run_ddp_benchmark(*options); }; });
}

void add_elastic(CLI::App& command, Action& chosen) {
  const auto options = std::make_shared<bench::ElasticBenchOptions>();
  CLI::App* const elastic =
      command.add_subcommand("elastic", "kill -9 of a rank: how long until the others, and a replacement, train");
  elastic->add_option("--model", options->model, "mlp (18.9 M parameters), cnn, gpt or small_mlp")
      ->capture_default_str();
  elastic->add_option("--batch", options->batch, "Samples per rank")->capture_default_str();
  elastic->add_option("--nproc", options->nproc, "Ranks on this host, one thread each")->capture_default_str();
  elastic->add_option("--rounds", options->rounds, "Rounds; each runs every case, in random order")
      ->capture_default_str();
  elastic->add_option("--commit-batch", options->commit_batch, "Samples per rank while commit() is timed")
      ->capture_default_str();
  elastic->add_option("--commit-steps", options->commit_steps, "Pairs of steps per round, with and without commit()")
      ->capture_default_str();
  add_hosts(*elastic, options->hosts, options->rate, "Also between");
  elastic->add_option("--peer", options->peers, "Compare with torch: torchrun, which restarts from a snapshot")
      ->type_name("NAME");
  elastic->add_option("--case", options->cases, "Only this one; may be repeated: rank, leader, commit, hosts-rank, ...")
      ->type_name("NAME");
  elastic->add_option("--logs", options->logs, "Keep what the ranks wrote in this folder")->type_name("FOLDER");
  elastic->add_option("--json", options->json_file, "Also write the rows to this file")->type_name("FILE");
  elastic->callback([&chosen, options] { chosen = [options] { return bench::run_elastic_benchmark(*options); }; });
}

}  // namespace

void add_bench_command(CLI::App& app, Action& chosen) {
  CLI::App* const command =
      app.add_subcommand("bench", "Measure collectives against Gloo, Open MPI, MPICH and the limits of the machine");
  for (const bench::Collective collective : bench::kCollectives) {
    const auto options = std::make_shared<BenchOptions>();
    options->collective = collective;
    CLI::App* const one = command->add_subcommand(std::string(to_string(collective)), help_of(collective));
    add_options(*one, *options);
    one->callback([&chosen, options] { chosen = [options] { return bench::run_benchmark(*options); }; });
  }
  add_threads(*command, chosen);
  add_ddp(*command, chosen);
  add_elastic(*command, chosen);
}

}  // namespace lockstep::cli
