// ddp_soak: trains with every feature of DDP in turn, round after round, and watches what the processes hold.
// tools/soak starts it; CONTRIBUTING.md explains its table.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "ddp/soak/growth.h"
#include "ddp/soak/rank.h"
#include "lockstep/ddp/spawn.h"
#include "lockstep/rendezvous/launched.h"

namespace lockstep::soak {
namespace {

constexpr const char* kUsage =
    "ddp_soak [--minutes M] [--rounds N] [--ranks R] [--leak]\n"
    "  --minutes M   how long; 60 if neither this nor --rounds is given\n"
    "  --rounds N    how many rounds, at least 8\n"
    "  --ranks R     how many processes to start, unless a launcher has started them; 3 if not given\n"
    "  --leak        let rank 1 leak some of everything in each round, to see it reported\n";

struct Arguments {
  double minutes = 60;
  std::optional<int> rounds;
  int ranks = 3;
  bool leak = false;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) throw std::invalid_argument(name + " needs a value");
      return std::string(argv[++i]);
    };
    if (name == "--minutes") {
      arguments.minutes = std::stod(value());
    } else if (name == "--rounds") {
      arguments.rounds = std::stoi(value());
    } else if (name == "--ranks") {
      arguments.ranks = std::stoi(value());
    } else if (name == "--leak") {
      arguments.leak = true;
    } else {
      throw std::invalid_argument("unknown argument " + name);
    }
  }
  if (arguments.rounds && *arguments.rounds < 8) throw std::invalid_argument("--rounds must be at least 8");
  return arguments;
}

// 256 KiB of heap, as much shared memory, a descriptor and a thread.
void leak_everything() {
  constexpr std::size_t kBytes = 256 * 1024;
  std::memset(new char[kBytes], 1, kBytes);
  const int fd = ::memfd_create("leak", MFD_CLOEXEC);
  if (::ftruncate(fd, kBytes) != 0) throw std::runtime_error("no shared memory to leak");
  std::memset(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), 1, kBytes);
  std::thread([] { ::pause(); }).detach();
}

class Soak {
 public:
  explicit Soak(const Arguments& arguments)
      : arguments_(arguments),
        folder_(std::filesystem::temp_directory_path() / fmt::format("lockstep_soak_{}", ::getpid())),
        rank_(folder_) {}
  ~Soak() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Soak(const Soak&) = delete;
  Soak& operator=(const Soak&) = delete;

  // Throws if something grows, on rank 0.
  void run() {
    const bool leads = rank_.number() == 0;
    if (leads) fmt::print("features: {}\n", fmt::join(rank_.features(), ", "));
    Usage usage{};
    for (usage.fill(0); !rank_.agree(done());) {
      rank_.run_round();
      if (arguments_.leak && rank_.number() == 1) leak_everything();
      usage = usage_now(usage);
      const std::vector<Usage> all = rank_.gather(usage);
      if (!leads) continue;
      rounds_.resize(all.size());
      for (std::size_t r = 0; r < all.size(); ++r) rounds_[r].push_back(all[r]);
      if (progress() >= next_print_) print_round();
    }
    if (!leads) return;
    fmt::print("\n{} rounds in {:.1f} minutes; the first quarter is the warm-up\n{}", count(), minutes(),
               growth_table(rounds_));
    const std::string report = growth_report(rounds_);
    if (!report.empty()) throw std::runtime_error("something grows:\n" + report);
    fmt::print("nothing grows\n");
  }

 private:
  std::size_t count() const { return rounds_.empty() ? 0 : rounds_[0].size(); }
  double minutes() const {
    return std::chrono::duration<double, std::ratio<60>>(std::chrono::steady_clock::now() - begin_).count();
  }
  double progress() const {
    return arguments_.rounds ? static_cast<double>(count()) / *arguments_.rounds : minutes() / arguments_.minutes;
  }
  // Fewer than 8 rounds prove nothing.
  bool done() const { return count() >= 8 && progress() >= 1; }

  void print_round() {
    if (next_print_ == 0) {
      fmt::print("{:>8}{:>7}{:>6}", "minute", "round", "rank");
      for (const Column& column : kColumns) fmt::print("  {:>16}", column.name);
      fmt::print("\n");
    }
    for (std::size_t r = 0; r < rounds_.size(); ++r) {
      fmt::print("{:>8.1f}{:>7}{:>6}", minutes(), count(), r);
      for (const std::int64_t value : rounds_[r].back()) fmt::print("  {:>16}", value);
      fmt::print("\n");
    }
    std::fflush(stdout);
    next_print_ = progress() + 0.1;
  }

  const Arguments arguments_;
  const std::filesystem::path folder_;
  Rank rank_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double next_print_ = 0;
  std::vector<std::vector<Usage>> rounds_;  // of each rank; on rank 0
};

}  // namespace
}  // namespace lockstep::soak

int main(int argc, char** argv) {
  using namespace lockstep::soak;
  Arguments arguments;
  try {
    arguments = parse(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n{}", error.what(), kUsage);
    return 2;
  }
  try {
    if (lockstep::is_launched()) {
      Soak(arguments).run();
    } else {
      lockstep::spawn(arguments.ranks, [&](int) { Soak(arguments).run(); });
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
