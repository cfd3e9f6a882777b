#include <sched.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "bench/worker/channel.h"
#include "bench/worker/worker.h"

namespace lockstep::bench {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

int rank_from_mpirun() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  throw BenchError("a worker was started without --rank and without mpirun");
}

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0)
    throw BenchError("cannot pin a rank to core " + std::to_string(core) + ": " + std::strerror(errno));
}

}  // namespace

WorkerConfig configure_worker(int argc, char** argv) {
  WorkerConfig config;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--socket") {
      config.socket = value;
    } else if (name == "--shared") {
      config.shared = value;
    } else if (name == "--rendezvous") {
      config.rendezvous = value;
    } else if (name == "--address") {
      config.address = value;
    } else if (name == "--hosts") {
      config.hosts = split(value);
    } else if (name == "--rank") {
      config.rank = std::stoi(value);
    } else if (name == "--size") {
      config.size = std::stoi(value);
    } else if (name == "--arena") {
      config.arena = std::stoull(value);
    } else if (name == "--registered") {
      config.registered = value == "1";
    } else if (name == "--cores") {
      for (const std::string& core : split(value)) config.cores.push_back(std::stoi(core));
    } else {
      throw BenchError("a worker got an unknown option: " + name);
    }
  }
  if (config.rank < 0) config.rank = rank_from_mpirun();
  if (config.rank >= config.size) throw BenchError("a worker's rank is not below the number of ranks");
  if (!config.cores.empty()) pin_to(config.cores.at(static_cast<std::size_t>(config.rank)));
  return config;
}

}  // namespace lockstep::bench
