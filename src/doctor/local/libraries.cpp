#include "doctor/local/libraries.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <set>

#include "base/net/socket.h"
#include "base/unique_fd.h"

namespace lockstep::doctor {
namespace {

constexpr std::chrono::seconds kPatience{10};

void* load(const char* name) { return ::dlopen(name, RTLD_LAZY | RTLD_LOCAL); }

std::string path_of(void* library) {
  link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return {};
  return map->l_name;
}

// LAPACK's interface, as Fortran calls it.
using Sgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                       const int*, const float*, const int*, const float*, float*, const int*);

double measure(Sgemm sgemm) {
  using Clock = std::chrono::steady_clock;
  const int n = 512;
  const float one = 1;
  const float zero = 0;
  const std::vector<float> a(std::size_t{512} * 512, 0.5F);
  std::vector<float> c(a.size());
  double best = 0;
  for (int i = 0; i < 4; ++i) {  // the first one starts the threads
    const auto start = Clock::now();
    sgemm("N", "N", &n, &n, &n, &one, a.data(), &n, a.data(), &n, &zero, c.data(), &n);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, 2.0 * n * n * n / seconds * 1e-9);
    if (seconds > 0.1) break;  // slow enough to be exact
  }
  return best;
}

std::string ask_blas() {
  void* const library = load("libblas.so.3");
  if (library == nullptr) return {};
  const auto sgemm = reinterpret_cast<Sgemm>(::dlsym(library, "sgemm_"));
  return fmt::format("{:.3g} {}", sgemm == nullptr ? 0 : measure(sgemm), path_of(library));
}

// MPI_Get_library_version may be called before MPI_Init.
std::string ask_mpi(const char* name) {
  void* const library = load(name);
  if (library == nullptr) return {};
  using GetVersion = int (*)(char*, int*);
  const auto get = reinterpret_cast<GetVersion>(::dlsym(library, "MPI_Get_library_version"));
  if (get == nullptr) return name;
  std::array<char, 8192> text{};
  int length = 0;
  get(text.data(), &length);
  std::string version(text.data());
  version.resize(std::min(version.find_first_of(",\n"), version.size()));
  std::replace(version.begin(), version.end(), '\t', ' ');
  return version;
}

std::string ask_nccl() {
  void* const library = load("libnccl.so.2");
  if (library == nullptr) return {};
  using GetVersion = int (*)(int*);
  const auto get = reinterpret_cast<GetVersion>(::dlsym(library, "ncclGetVersion"));
  int version = 0;
  if (get == nullptr || get(&version) != 0) return "of unknown version";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// Loading LibTorch takes seconds, so its files are looked for.
std::vector<std::string> find_torch(const System& system) {
  std::vector<std::string> folders;
  std::string path = system.environment("LD_LIBRARY_PATH").value_or("");
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    if (end > begin) folders.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
                             "/usr/local/lib", "/opt/libtorch/lib", "/usr/local/libtorch/lib"}) {
    folders.emplace_back(folder);
  }
  for (const char* parent : {"/usr/lib", "/usr/local/lib"}) {
    for (const std::string& name : system.names(parent)) {
      if (!name.starts_with("python3")) continue;
      for (const char* packages : {"dist-packages", "site-packages"}) {
        folders.push_back(fmt::format("{}/{}/{}/torch/lib", parent, name, packages));
      }
    }
  }
  std::set<std::string> seen;
  std::vector<std::string> found;
  for (const std::string& folder : folders) {
    const auto file = system.resolved(folder + "/libtorch_cpu.so");
    if (file && seen.insert(*file).second) found.push_back(*file);
  }
  return found;
}

}  // namespace

std::optional<std::string> ask_in_child(const std::function<std::string()>& ask, Deadline deadline) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    // What a library prints is none of our output.
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    const std::string answer = ask() + '\0';  // it is complete
    const ssize_t written = ::write(write_end.get(), answer.data(), answer.size());
    ::_exit(written < 0 ? 1 : 0);
  }
  write_end.reset();
  if (child < 0) return std::nullopt;
  std::string answer;
  std::array<char, 4096> block{};
  while (wait_ready(read_end.get(), POLLIN, deadline).ok()) {
    const ssize_t got = ::read(read_end.get(), block.data(), block.size());
    if (got <= 0) break;
    answer.append(block.data(), static_cast<std::size_t>(got));
  }
  ::kill(child, SIGKILL);  // it has answered, or never will
  ::waitpid(child, nullptr, 0);
  if (!answer.ends_with('\0')) return std::nullopt;
  answer.pop_back();
  return answer;
}

Libraries find_libraries(const System& system) {
  Libraries libraries{.torch = find_torch(system)};
  const auto answer = ask_in_child(ask_blas, Deadline::after(kPatience));
  libraries.blas.broken = !answer;
  const std::string blas = answer.value_or("");
  if (const std::size_t space = blas.find(' '); space != std::string::npos) {
    libraries.blas.gigaflops = std::strtod(blas.c_str(), nullptr);
    std::string path = blas.substr(space + 1);
    std::array<char, 4096> real{};
    if (::realpath(path.c_str(), real.data()) != nullptr) path = real.data();
    libraries.blas.path = path;
  }
  for (const char* name : {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12"}) {
    std::string version = ask_in_child([name] { return ask_mpi(name); }, Deadline::after(kPatience))
                              .value_or(fmt::format("{}, which crashed or did not answer", name));
    const bool known = std::find(libraries.mpi.begin(), libraries.mpi.end(), version) != libraries.mpi.end();
    if (!version.empty() && !known) libraries.mpi.push_back(std::move(version));
  }
  libraries.nccl =
      ask_in_child(ask_nccl, Deadline::after(kPatience)).value_or("libnccl.so.2, which crashed or did not answer");
  return libraries;
}

Finding judge_blas(const Blas& blas) {
  constexpr const char* kUseOpenBlas =
      "matrix products on the CPU are about 20 times as fast with OpenBLAS: apt-get install libopenblas0-pthread (then "
      "`update-alternatives --display libblas.so.3-x86_64-linux-gnu` names it)";
  if (blas.broken) {
    return yellow("BLAS", "libblas.so.3 crashed, or multiplied no two 512 x 512 matrices within 10 s",
                  "programs that use it would, too: install another one (apt-get install libopenblas0-pthread)");
  }
  if (blas.path.empty()) {
    return green("BLAS", "there is no libblas.so.3; a LibTorch with its own BLAS does not need it");
  }
  const std::string value =
      blas.gigaflops > 0 ? fmt::format("{} ({:.3g} Gflop/s)", blas.path, blas.gigaflops) : blas.path;
  // Debian's packages libblas3 and libatlas3-base.
  if (blas.path.find("/blas/libblas") != std::string::npos || blas.path.find("netlib") != std::string::npos) {
    return yellow("BLAS", value + ": the reference BLAS", kUseOpenBlas);
  }
  if (blas.path.find("atlas") != std::string::npos) return yellow("BLAS", value + ": generic ATLAS", kUseOpenBlas);
  return green("BLAS", value);
}

std::vector<Finding> judge_libraries(const Libraries& libraries) {
  return {judge_blas(libraries.blas),
          green("LibTorch", libraries.torch.empty() ? "not found in the usual folders; a program may bring its own"
                                                    : fmt::format("{}", fmt::join(libraries.torch, ", "))),
          green("MPI", libraries.mpi.empty() ? "not found; only the backend mpi needs it"
                                             : fmt::format("{}", fmt::join(libraries.mpi, ", "))),
          green("NCCL", libraries.nccl.empty() ? "not found; only the backend nccl needs it" : libraries.nccl)};
}

}  // namespace lockstep::doctor
