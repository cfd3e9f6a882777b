// lockstep bench: compares the engine with its peers and with the machine's limits.
#include <memory>

#include "bench/driver/ddp/ddp.h"
#include "bench/driver/elastic/elastic.h"
#include "bench/driver/measure.h"
#include "bench/driver/options.h"
#include "bench/driver/scale/scale.h"
#include "bench/threads_scaling.h"
#include "cli/command.h"

namespace lockstep::cli {
namespace {

using bench::BenchOptions;

// An option whose text is parsed by `parse`; an error of `parse` becomes a CLI::ValidationError.
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
             verb + " virtual hosts, made of network namespaces (needs root): their number, and the ranks on each")
      ->type_name("HOSTS:RANKS");
  add_parsed(command, "--rate", bench::parse_rate, rate,
             "Limit the links between these hosts to this rate, such as 1gbit")
      ->type_name("RATE");
}

const char* help_of(bench::Collective collective) {
  switch (collective) {
    case bench::Collective::all_reduce: return "Every rank gets the sum of all ranks' buffers";
    case bench::Collective::broadcast: return "Every rank gets the buffer of rank 0";
    case bench::Collective::all_gather: return "Every rank gets the buffers of all ranks";
    case bench::Collective::reduce_scatter: return "Every rank gets its part of the sum of all ranks' buffers";
    case bench::Collective::barrier: return "Every rank waits for all others";
  }
  return "";
}

void add_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--nproc", options.nproc, "Ranks on this host")->capture_default_str();
  add_parsed(command, "--bytes", bench::parse_size_range, options.bytes,
             "Sizes from MIN to MAX, such as 8, 64K, 25M or 1G")
      ->type_name("MIN:MAX")
      ->default_str("8:128M");
  command.add_option("--step", options.step, "Factor from one size to the next")->capture_default_str();
  add_parsed(command, "--dtype", bench::parse_dtype, options.dtype,
             "Element type: f32, f64, f16, bf16, i8, u8, i32, i64")
      ->type_name("TYPE")
      ->default_str("f32");
  add_parsed(command, "--memory", bench::parse_memory, options.memories,
             "Memory of Lockstep's buffers: registered, private or both")
      ->type_name("KIND")
      ->default_str("both");
  command.add_option("--peer", options.peers, "Compare with gloo, openmpi or mpich; repeat the option for several")
      ->type_name("NAME");
  command.add_option("--rounds", options.rounds, "Number of rounds; each measures every engine, in random order")
      ->capture_default_str();
  command.add_option("--iterations", options.iterations,
                     "Timed operations per round (default: 200 for small sizes to 5 for large ones)");
  command.add_flag("--warm", options.warm, "Reuse one buffer instead of rotating through more than the cache holds");
  command.add_option("--json", options.json_file, "Also write the results to this file, as JSON")->type_name("FILE");
  add_hosts(command, options.hosts, options.rate, "Run on");
}

void add_threads(CLI::App& command, Action& chosen) {
  const auto options = std::make_shared<bench::ThreadsOptions>();
  CLI::App* const threads =
      command.add_subcommand("threads", "All-reduce between threads of one process, for growing numbers of threads");
  threads->add_option("--max-ranks", options->max_ranks, "Largest number of ranks; starts with 2 and doubles")
      ->capture_default_str();
  threads->add_option("--rounds", options->rounds, "Number of rounds; the table has their median")
      ->capture_default_str();
  threads->callback([&chosen, options] { chosen = [options] { return bench::run_threads_scaling(*options); }; });
}

void add_scale(CLI::App& command, Action& chosen) {
  const auto options = std::make_shared<bench::ScaleOptions>();
  CLI::App* const scale = command.add_subcommand(
      "scale", "Forming, memory, idle costs, all-reduce and a killed rank, for growing numbers of processes");
  scale->add_option("--min-ranks", options->min_ranks, "Smallest number of ranks; doubles from there")
      ->capture_default_str();
  scale->add_option("--max-ranks", options->max_ranks, "Largest number of ranks")->capture_default_str();
  scale
      ->add_option("--ranks-per-host", options->ranks_per_host,
                   "Treat this machine as several hosts, connected by TCP, with this many ranks each (0: one host)")
      ->capture_default_str();
  scale->add_option("--idle", options->idle_seconds, "Seconds for which the idle ranks are observed")
      ->capture_default_str();
  scale->callback([&chosen, options] { chosen = [options] { return bench::run_scale_benchmark(*options); }; });
}

void add_ddp(CLI::App& command, Action& chosen) {
  const auto options = std::make_shared<bench::DdpBenchOptions>();
  CLI::App* const ddp =
      command.add_subcommand("ddp", "Training step with DDP on several engines, without DDP, and in PyTorch");
  ddp->add_option("--model", options->model, "mlp (18.9 M parameters), cnn or gpt")->capture_default_str();
  ddp->add_option("--batch", options->batch, "Samples per rank")->capture_default_str();
  ddp->add_option("--optimizer", options->optimizer, "sgd or adamw: Lockstep's fused one, and PyTorch's fastest")
      ->capture_default_str();
  ddp->add_option("--nproc", options->nproc, "Ranks on this host, one thread each")->capture_default_str();
  ddp->add_option("--rounds", options->rounds, "Number of rounds; each runs every engine, in random order")
      ->capture_default_str();
  ddp->add_option("--steps", options->steps, "Steps per round; their median counts")->capture_default_str();
  ddp->add_option(
         "--backend", options->backends,
         "Engine below DDP: lockstep, gloo, openmpi or mpich; repeat the option for several, the others are compared "
         "with the first")
      ->type_name("NAME")
      ->default_str("lockstep");
  ddp->add_option("--peer", options->peers, "Compare with torch, PyTorch's DDP over Gloo")->type_name("NAME");
  add_hosts(*ddp, options->hosts, options->rate, "Run on");
  ddp->add_option("--json", options->json_file, "Also write the results to this file, as JSON")->type_name("FILE");
  ddp->callback([&chosen, options] { chosen = [options] { return bench::run_ddp_benchmark(*options); }; });
}

void add_elastic(CLI::App& command, Action& chosen) {
  const auto options = std::make_shared<bench::ElasticBenchOptions>();
  CLI::App* const elastic =
      command.add_subcommand("elastic", "Time from kill -9 of a rank until the others, and a replacement, train");
  elastic->add_option("--model", options->model, "mlp (18.9 M parameters), cnn, gpt or small_mlp")
      ->capture_default_str();
  elastic->add_option("--batch", options->batch, "Samples per rank")->capture_default_str();
  elastic->add_option("--nproc", options->nproc, "Ranks on this host, one thread each")->capture_default_str();
  elastic->add_option("--rounds", options->rounds, "Number of rounds; each runs every case, in random order")
      ->capture_default_str();
  elastic->add_option("--commit-batch", options->commit_batch, "Samples per rank while commit() is timed")
      ->capture_default_str();
  elastic->add_option("--commit-steps", options->commit_steps, "Pairs of steps per round, with and without commit()")
      ->capture_default_str();
  add_hosts(*elastic, options->hosts, options->rate, "Also run between");
  elastic->add_option("--peer", options->peers, "Compare with torch, that is torchrun, which restarts from a snapshot")
      ->type_name("NAME");
  elastic
      ->add_option("--case", options->cases,
                   "Run only this case: rank, leader, commit, hosts-rank, ...; repeat the option for several")
      ->type_name("NAME");
  elastic->add_option("--logs", options->logs, "Keep the output of the ranks in this folder")->type_name("FOLDER");
  elastic->add_option("--json", options->json_file, "Also write the results to this file, as JSON")->type_name("FILE");
  elastic->callback([&chosen, options] { chosen = [options] { return bench::run_elastic_benchmark(*options); }; });
}

}  // namespace

void add_bench_command(CLI::App& app, Action& chosen) {
  CLI::App* const command = app.add_subcommand(
      "bench", "Compare collectives and training with Gloo, Open MPI, MPICH, PyTorch and the limits of the machine");
  for (const bench::Collective collective : bench::kCollectives) {
    const auto options = std::make_shared<BenchOptions>();
    options->collective = collective;
    CLI::App* const one = command->add_subcommand(std::string(to_string(collective)), help_of(collective));
    add_options(*one, *options);
    one->callback([&chosen, options] { chosen = [options] { return bench::run_benchmark(*options); }; });
  }
  add_threads(*command, chosen);
  add_scale(*command, chosen);
  add_ddp(*command, chosen);
  add_elastic(*command, chosen);
}

}  // namespace lockstep::cli
