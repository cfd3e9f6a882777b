#include "launch/options/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "launch/options/endpoint.h"
#include "launch/options/option_values.h"
#include "rendezvous/whole_number.h"

namespace lockstep::launch {
namespace {

constexpr std::uint16_t kDefaultPort = 29400;  // torchrun's, of --rdzv-endpoint without a port
constexpr int kMaxLocalRanks = 4096;           // larger numbers are considered mistakes
constexpr int kElasticRestarts = 10;

Status wrong(std::string message) { return Status(StatusCode::invalid_argument, std::move(message)); }

// The options read so far, with those that are only valid in combination.
struct Draft {
  RunOptions options;
  int cores = 1;
  bool standalone = false;
  bool has_nnodes = false;
  std::optional<int> max_restarts;
  std::optional<int> min_ranks;
  std::string rdzv_endpoint;
  std::string master_addr;
  std::optional<int> master_port;
};

// Parses `text`, the value of `source` ("--tee" or "PET_TEE").
using Setter = Status (*)(Draft& draft, const std::string& source, const std::string& text);

struct Option {
  const char* name;   // in help, with -; _ is accepted too
  const char* value;  // null: a flag; "[=VALUE]": a flag that may have a value after =
  const char* help;
  Setter set;
};

template <typename T, typename Target>
Status assign(Result<T> result, Target& target) {
  if (!result.ok()) return result.status();
  target = *std::move(result);
  return {};
}

Status set_nproc(Draft& draft, const std::string& source, const std::string& text) {
  if (text == "auto" || text == "cpu") {
    draft.options.nproc = std::clamp(draft.cores, 1, kMaxLocalRanks);
    return {};
  }
  if (text == "gpu")
    return wrong(fmt::format("{} is 'gpu'; this build trains on CPUs: give a number, auto or cpu", source));
  const auto number = parse_whole_number(source, text, 1, kMaxLocalRanks);
  if (!number.ok()) {
    return wrong(fmt::format("{} is '{}'; expected a number of ranks from 1 to {}, or auto or cpu for one on each core",
                             source, text, kMaxLocalRanks));
  }
  draft.options.nproc = *number;
  return {};
}

Status set_nnodes(Draft& draft, const std::string& source, const std::string& text) {
  const auto range = parse_node_range(source, text);
  if (!range.ok()) return range.status();
  draft.options.min_nodes = range->first;
  draft.options.max_nodes = range->second;
  draft.has_nnodes = true;
  return {};
}

Status set_backend(Draft&, const std::string& source, const std::string& text) {
  if (text.empty() || text == "c10d" || text == "static" || text == "lockstep") return {};
  return wrong(fmt::format(
      "{} is '{}'; nodes meet in a store that Lockstep serves itself: omit the option, or give c10d or static", source,
      text));
}

Status set_conf(Draft& draft, const std::string& source, const std::string& text) {
  const auto conf = parse_rendezvous_conf(source, text);
  if (!conf.ok()) return conf.status();
  if (conf->start_timeout) draft.options.start_timeout = *conf->start_timeout;
  if (conf->last_call_timeout) draft.options.last_call_timeout = *conf->last_call_timeout;
  return {};
}

Status set_serve_store(Draft& draft, const std::string& source, const std::string& text) {
  if (text == "auto") {
    draft.options.serve_store = ServeStore::automatic;
  } else if (text == "yes") {
    draft.options.serve_store = ServeStore::yes;
  } else if (text == "no") {
    draft.options.serve_store = ServeStore::no;
  } else {
    return wrong(fmt::format("{} is '{}'; expected auto, yes or no", source, text));
  }
  return {};
}

Status set_dashboard(Draft& draft, const std::string& source, const std::string& text) {
  if (const auto on = parse_flag(source, text); on.ok()) {
    if (*on) draft.options.dashboard = "";
    return {};
  }
  draft.options.dashboard = text;
  return parse_host_port(text).status().with_context(source);
}

template <bool RunOptions::*flag, bool value>
Status set_flag(Draft& draft, const std::string& source, const std::string& text) {
  const auto on = parse_flag(source, text);
  if (!on.ok()) return on.status();
  if (*on) draft.options.*flag = value;
  return {};
}

template <std::string RunOptions::*target>
Status set_text(Draft& draft, const std::string&, const std::string& text) {
  draft.options.*target = text;
  return {};
}

template <std::chrono::milliseconds RunOptions::*target>
Status set_seconds(Draft& draft, const std::string& source, const std::string& text) {
  return assign(parse_seconds(source, text), draft.options.*target);
}

template <StreamChoice RunOptions::*target>
Status set_streams(Draft& draft, const std::string& source, const std::string& text) {
  return assign(parse_streams(source, text), draft.options.*target);
}

const std::vector<Option>& options_table() {
  static const std::vector<Option> table = {
      {"nproc-per-node", "N|auto|cpu", "Ranks on this node; auto and cpu: one on each core", set_nproc},
      {"nnodes", "N|MIN:MAX", "Nodes of the job", set_nnodes},
      {"node-rank", "R", "The number of this node among them; default: in order of arrival",
       [](Draft& draft, const std::string& source, const std::string& text) {
         return assign(parse_whole_number(source, text, 0, kMaxWorldSize - 1), draft.options.node_rank);
       }},
      {"rdzv-endpoint", "HOST[:PORT],..", "Where the nodes meet; the node on that host serves the store (port 29400)",
       [](Draft& draft, const std::string&, const std::string& text) {
         draft.rdzv_endpoint = text;
         return Status();
       }},
      {"rdzv-id", "NAME", "The job's name, the same on all nodes", set_text<&RunOptions::run_id>},
      {"rdzv-backend", "c10d|static", "Accepted for compatibility with torchrun", set_backend},
      {"rdzv-conf", "KEY=VALUE,..", "As in torchrun: join_timeout is --start-timeout, last_call_timeout is --last-call",
       set_conf},
      {"master-addr", "HOST", "The host part of --rdzv-endpoint",
       [](Draft& draft, const std::string&, const std::string& text) {
         draft.master_addr = text;
         return Status();
       }},
      {"master-port", "PORT", "Its port; 0: any free one (one node)",
       [](Draft& draft, const std::string& source, const std::string& text) {
         return assign(parse_whole_number(source, text, 0, 65535), draft.master_port);
       }},
      {"local-addr", "ADDRESS", "The address at which other nodes reach this one", set_text<&RunOptions::local_addr>},
      {"witness", "HOST:PORT", "A `lockstep witness`, which decides between two halves of the job (LOCKSTEP_WITNESS)",
       [](Draft& draft, const std::string& source, const std::string& text) {
         draft.options.witness = text;
         return parse_host_port(text).status().with_context(source);
       }},
      {"standalone", nullptr, "One node, any free port",
       [](Draft& draft, const std::string& source, const std::string& text) {
         return assign(parse_flag(source, text), draft.standalone);
       }},
      {"start-timeout", "SECONDS", "How long to wait for the other nodes (600)",
       set_seconds<&RunOptions::start_timeout>},
      {"last-call", "SECONDS", "With MIN:MAX: how long to wait for more nodes once MIN have arrived (30)",
       set_seconds<&RunOptions::last_call_timeout>},
      {"node-timeout", "SECONDS", "A node that is silent this long is lost (10)",
       set_seconds<&RunOptions::node_timeout>},
      {"max-restarts", "N", "How often the job may restart (0; with --elastic 10)",
       [](Draft& draft, const std::string& source, const std::string& text) {
         return assign(parse_whole_number(source, text, 0, 1'000'000), draft.max_restarts);
       }},
      {"elastic", nullptr, "Replace a rank that dies while the others continue", set_flag<&RunOptions::elastic, true>},
      {"min-ranks", "N", "With --elastic: with fewer ranks the job waits (1)",
       [](Draft& draft, const std::string& source, const std::string& text) {
         return assign(parse_whole_number(source, text, 1, kMaxWorldSize), draft.min_ranks);
       }},
      {"shutdown-timeout", "SECONDS", "Time from SIGTERM to SIGKILL when ranks are stopped (30)",
       set_seconds<&RunOptions::shutdown_timeout>},
      {"monitor-interval", "SECONDS", "How often to poll the other nodes (0.1)",
       set_seconds<&RunOptions::monitor_interval>},
      {"log-dir", "FOLDER", "Write each rank's output to files there", set_text<&RunOptions::log_dir>},
      {"metrics", "FOLDER", "Write what ranks log as metrics there: TensorBoard, CSV, JSON (LOCKSTEP_METRICS)",
       set_text<&RunOptions::metrics>},
      {"trace", "FILE", "Write a timeline of all ranks there, for Perfetto and chrome://tracing",
       set_text<&RunOptions::trace>},
      {"dashboard", "[=ADDRESS:PORT]", "Serve a page that shows the job, at a loopback address (127.0.0.1:29480)",
       set_dashboard},
      {"redirects", "STREAMS", "Output to files only: 1 stdout, 2 stderr, 3 both; 0:1,1:2 for single local ranks",
       set_streams<&RunOptions::redirects>},
      {"tee", "STREAMS", "Output to files and to the terminal, in the same way", set_streams<&RunOptions::tee>},
      {"local-ranks-filter", "RANKS", "Print the output of these local ranks only, such as 0,2",
       [](Draft& draft, const std::string& source, const std::string& text) {
         return assign(parse_ranks(source, text), draft.options.shown_local_ranks);
       }},
      {"no-prefix", nullptr, "Print lines without [rank N] or [worker N]", set_flag<&RunOptions::prefix, false>},
      {"no-bind", nullptr, "Let the ranks run on any core", set_flag<&RunOptions::bind, false>},
      {"role", "NAME", "ROLE_NAME of the ranks (default)", set_text<&RunOptions::role>},
      {"serve-store", "auto|yes|no", "Serve the ranks' store; auto: unless the program is a Python script",
       set_serve_store},
      {"python", "PROGRAM", "The interpreter of Python scripts (python3)", set_text<&RunOptions::python>},
      {"module", nullptr, "The program is the name of a Python module; also -m", set_flag<&RunOptions::module, true>},
      {"no-python", nullptr, "Execute the program itself, even if it is called *.py",
       set_flag<&RunOptions::no_python, true>},
  };
  return table;
}

std::string spelling(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool takes_no_next_argument(const Option& option) { return option.value == nullptr || option.value[0] == '['; }

const Option* find_option(const std::string& name) {
  const auto& table = options_table();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Option& option) { return name == option.name; });
  return found == table.end() ? nullptr : &*found;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

Status unknown_option(const std::string& argument, const std::string& name) {
  const auto& table = options_table();
  const auto nearest = std::min_element(table.begin(), table.end(), [&](const Option& a, const Option& b) {
    return edit_distance(name, a.name) < edit_distance(name, b.name);
  });
  if (edit_distance(name, nearest->name) <= 3)
    return wrong(fmt::format("unknown option '{}'; did you mean --{}?", argument, nearest->name));
  return wrong(fmt::format("unknown option '{}'; options of your program go after the program", argument));
}

std::string variable_of(const Option& option) {
  std::string name = "PET_";
  for (const char c : std::string_view(option.name)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

Status read_environment(const Environment& environment, Draft& draft) {
  draft.options.witness = environment("LOCKSTEP_WITNESS").value_or("");
  draft.options.metrics = environment("LOCKSTEP_METRICS").value_or("");
  for (const Option& option : options_table()) {
    const std::string variable = variable_of(option);
    const auto text = environment(variable.c_str());
    if (text) LOCKSTEP_RETURN_IF_ERROR(option.set(draft, variable, *text));
  }
  return {};
}

// "-t" as "--tee" and so on; anything else unchanged.
std::string long_form(const std::string& argument) {
  if (argument == "-t") return "--tee";
  if (argument == "-r") return "--redirects";
  if (argument == "-m") return "--module";
  if (argument == "-h") return "--help";
  return argument;
}

// Reads options up to the program, and keeps the program's arguments as they are.
Status read_arguments(const std::vector<std::string>& arguments, Draft& draft) {
  std::size_t next = 0;
  for (; next < arguments.size(); ++next) {
    const std::string argument = long_form(arguments[next]);
    if (argument == "--") {
      ++next;
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') break;
    if (argument == "--help") {
      draft.options.help = true;
      return {};
    }
    const std::size_t equals = argument.find('=');
    const std::string name = argument.starts_with("--") ? spelling(argument.substr(2, equals - 2)) : argument;
    const Option* const option = find_option(name);
    if (option == nullptr) return unknown_option(argument, name);
    const std::string source = "--" + name;
    if (takes_no_next_argument(*option)) {
      if (equals != std::string::npos && option->value != nullptr) {
        LOCKSTEP_RETURN_IF_ERROR(option->set(draft, source, argument.substr(equals + 1)));
        continue;
      }
      if (equals != std::string::npos) return wrong(fmt::format("{} takes no value; got '{}'", source, argument));
      LOCKSTEP_RETURN_IF_ERROR(option->set(draft, source, "1"));
    } else if (equals != std::string::npos) {
      LOCKSTEP_RETURN_IF_ERROR(option->set(draft, source, argument.substr(equals + 1)));
    } else {
      if (next + 1 == arguments.size()) return wrong(fmt::format("{} needs a value: {}", source, option->value));
      LOCKSTEP_RETURN_IF_ERROR(option->set(draft, source, arguments[++next]));
    }
  }
  if (next < arguments.size()) {
    draft.options.program = arguments[next];
    draft.options.arguments.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next) + 1, arguments.end());
  }
  return {};
}

Status read_endpoint(Draft& draft) {
  RunOptions& options = draft.options;
  if (!draft.rdzv_endpoint.empty()) {
    const std::string& text = draft.rdzv_endpoint;
    auto endpoints = parse_endpoints(text, kDefaultPort);
    if (!endpoints.ok()) return endpoints.status().with_context("--rdzv-endpoint");
    const HostPort& first = endpoints->front();
    if (!draft.master_addr.empty() && draft.master_addr != first.host) {
      return wrong(fmt::format("--rdzv-endpoint is '{}', but --master-addr is '{}'; give the endpoint only once", text,
                               draft.master_addr));
    }
    if (draft.master_port && *draft.master_port != first.port) {
      return wrong(fmt::format("--rdzv-endpoint is '{}', but --master-port is {}; give the endpoint only once", text,
                               *draft.master_port));
    }
    options.endpoints = *std::move(endpoints);
  } else if (!draft.master_addr.empty() || draft.master_port) {
    const bool alone = draft.master_addr.empty();
    const auto port = static_cast<std::uint16_t>(draft.master_port.value_or(kDefaultPort));
    options.endpoints = {{.host = alone ? "127.0.0.1" : draft.master_addr, .port = port}};
  }
  return {};
}

Status check_nodes(const Draft& draft) {
  const RunOptions& options = draft.options;
  if (draft.standalone) {
    if (options.max_nodes > 1) {
      return wrong(fmt::format("--standalone means one node, but --nnodes is {}; omit one of them", options.max_nodes));
    }
    if (!draft.rdzv_endpoint.empty() || !draft.master_addr.empty())
      return wrong("--standalone uses any free port of this host; omit --rdzv-endpoint and --master-addr");
  }
  if (options.max_nodes > 1 && draft.rdzv_endpoint.empty() && draft.master_addr.empty()) {
    return wrong(
        fmt::format("--nnodes is {}, but there is no endpoint at which the nodes meet; give all of them the same "
                    "--rdzv-endpoint HOST:PORT, where HOST is one of them",
                    options.max_nodes));
  }
  const auto has_no_port = [](const HostPort& endpoint) { return endpoint.port == 0; };
  if (options.max_nodes > 1 && std::any_of(options.endpoints.begin(), options.endpoints.end(), has_no_port))
    return wrong("port 0 means any free port, which the other nodes could not know; give the endpoint a port");
  if (options.node_rank && *options.node_rank >= options.max_nodes) {
    return wrong(fmt::format("--node-rank is {}, but --nnodes is {}; expected a number from 0 to {}",
                             *options.node_rank, options.max_nodes, options.max_nodes - 1));
  }
  return {};
}

Status check_ranks(const Draft& draft) {
  const RunOptions& options = draft.options;
  if (draft.min_ranks && !options.elastic) return wrong("--min-ranks needs --elastic");
  if (options.min_ranks > options.nproc * static_cast<long long>(options.max_nodes)) {
    return wrong(fmt::format("--min-ranks is {}, but there are at most {} ranks ({} on each of {} nodes)",
                             options.min_ranks, options.nproc * static_cast<long long>(options.max_nodes),
                             options.nproc, options.max_nodes));
  }
  const auto check = [&](const char* option, int rank) {
    if (rank < options.nproc) return Status();
    return wrong(fmt::format("{} names local rank {}, but --nproc-per-node is {}", option, rank, options.nproc));
  };
  for (const int rank : options.shown_local_ranks) LOCKSTEP_RETURN_IF_ERROR(check("--local-ranks-filter", rank));
  for (const auto& [rank, streams] : options.tee.by_local_rank) LOCKSTEP_RETURN_IF_ERROR(check("--tee", rank));
  for (const auto& [rank, streams] : options.redirects.by_local_rank)
    LOCKSTEP_RETURN_IF_ERROR(check("--redirects", rank));
  return {};
}

Status finish(Draft& draft) {
  RunOptions& options = draft.options;
  LOCKSTEP_RETURN_IF_ERROR(read_endpoint(draft));
  LOCKSTEP_RETURN_IF_ERROR(check_nodes(draft));
  options.max_restarts = draft.max_restarts.value_or(options.elastic ? kElasticRestarts : 0);
  options.min_ranks = draft.min_ranks.value_or(1);
  LOCKSTEP_RETURN_IF_ERROR(check_ranks(draft));
  if (options.module && options.no_python)
    return wrong("--module starts Python, and --no-python does not; give only one of them");
  if (options.run_id.find('/') != std::string::npos || options.run_id == "." || options.run_id == "..")
    return wrong(fmt::format("--rdzv-id is '{}'; it names a folder, so it must not contain a /", options.run_id));
  if (options.program.empty())
    return wrong("the program is missing; write lockstep run [options] PROGRAM [its arguments]");
  return {};
}

}  // namespace

bool StreamChoice::contains(int local_rank, int stream) const {
  const auto found = by_local_rank.find(local_rank);
  return ((found == by_local_rank.end() ? all : found->second) & stream) != 0;
}

Result<RunOptions> parse_run_options(const std::vector<std::string>& arguments, const Environment& environment,
                                     int cores) {
  Draft draft;
  draft.cores = cores;
  LOCKSTEP_RETURN_IF_ERROR(read_environment(environment, draft));
  LOCKSTEP_RETURN_IF_ERROR(read_arguments(arguments, draft));
  if (!draft.options.help) LOCKSTEP_RETURN_IF_ERROR(finish(draft));
  return std::move(draft.options);
}

std::string run_help() {
  std::string text =
      "Starts the ranks of a job, shows their output, and reports failures\n"
      "Usage: lockstep run [options] PROGRAM [its arguments]\n\n"
      "  lockstep run --nproc-per-node 4 ./train --epochs 10\n"
      "  lockstep run --nnodes 2 --rdzv-endpoint host:29400 --nproc-per-node 4 ./train\n\n"
      "Options (with - or _ in their names; each can also be set by a variable such as PET_NPROC_PER_NODE):\n";
  for (const Option& option : options_table()) {
    const bool separate = !takes_no_next_argument(option);
    const std::string left =
        fmt::format("--{}{}{}", option.name, separate ? " " : "", option.value != nullptr ? option.value : "");
    text += fmt::format("  {:<30} {}\n", left, option.help);
  }
  text +=
      "\nExit codes: that of the rank that failed first (128 + the number of its signal); 2 invalid options;\n"
      "3 the nodes did not meet, or one was lost; 130 and 143 interrupted by SIGINT and SIGTERM.\n";
  return text;
}

}  // namespace lockstep::launch
