#include "mpi/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <string_view>

#include "base/printable.h"

namespace lockstep::mpi {
namespace {

Status wrong(std::string message) { return {StatusCode::invalid_argument, std::move(message)}; }

const char* full_name(const std::string& plugin) { return plugin == "openmpi" ? "Open MPI" : "MPICH"; }

// Slurm's srun and PMIx serve every MPI.
bool serves_any_mpi(const Environment& environment) { return environment("SLURM_STEP_ID") || environment("PMIX_RANK"); }

// The MPI whose mpirun started this process; empty if none did.
std::string started_by(const Environment& environment) {
  if (environment("OMPI_COMM_WORLD_SIZE")) return "openmpi";
  if (environment("PMI_SIZE") || environment("PMI_RANK")) return "mpich";
  return "";
}

// The program itself, not one of its libraries, is linked with an MPI.
bool program_needs_mpi() {
  void* const handle = ::dlopen(nullptr, RTLD_LAZY);
  link_map* program = nullptr;
  if (handle == nullptr || ::dlinfo(handle, RTLD_DI_LINKMAP, &program) != 0) return false;
  const char* strings = nullptr;
  for (const ElfW(Dyn)* entry = program->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
  }
  for (const ElfW(Dyn)* entry = program->l_ld; strings != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_NEEDED && std::string_view(strings + entry->d_un.d_val).starts_with("libmpi")) return true;
  }
  return false;
}

// The MPI in this process has been started, so no other can be started.
bool mpi_is_started() {
  const auto initialized = reinterpret_cast<int (*)(int*)>(::dlsym(RTLD_DEFAULT, "MPI_Initialized"));
  int started = 0;
  return initialized != nullptr && initialized(&started) == 0 && started != 0;
}

// The MPI that the program uses by itself. One that was only loaded with a library does not count: Debian's LibTorch
// brings Open MPI with it since Debian 13.
std::optional<std::string> linked_mpi() {
  void* const symbol = ::dlsym(RTLD_DEFAULT, "MPI_Get_library_version");
  if (symbol == nullptr || !(program_needs_mpi() || mpi_is_started())) return std::nullopt;
  std::array<char, 8192> text{};  // MPI_MAX_LIBRARY_VERSION_STRING is 256 in Open MPI and 8192 in MPICH
  int length = 0;
  reinterpret_cast<int (*)(char*, int*)>(symbol)(text.data(), &length);
  return std::string(text.data());
}

// The folder of the library that has this function, or of the program if it is linked statically, and the folders in
// which the loader searches its dependencies.
struct OwnPlace {
  std::string folder;
  std::vector<std::string> run_path;
};
OwnPlace own_place() {
  OwnPlace place;
  Dl_info info{};
  link_map* self = nullptr;
  if (::dladdr1(reinterpret_cast<void*>(&own_place), &info, reinterpret_cast<void**>(&self), RTLD_DL_LINKMAP) == 0)
    return place;
  std::error_code ignored;
  // The program itself is listed without a name.
  const char* const file = self->l_name != nullptr && *self->l_name != '\0' ? self->l_name : "/proc/self/exe";
  place.folder = std::filesystem::canonical(file, ignored).parent_path().string();
  Dl_serinfo size{};
  if (::dlinfo(self, RTLD_DI_SERINFOSIZE, &size) != 0) return place;
  std::vector<std::max_align_t> memory(size.dls_size / sizeof(std::max_align_t) + 1);
  auto* const list = reinterpret_cast<Dl_serinfo*>(memory.data());
  if (::dlinfo(self, RTLD_DI_SERINFOSIZE, list) != 0 || ::dlinfo(self, RTLD_DI_SERINFO, list) != 0) return place;
  for (unsigned i = 0; i < list->dls_cnt; ++i) place.run_path.emplace_back(list->dls_serpath[i].dls_name);
  return place;
}

Result<Plugin> use(const std::string& path, void* library) {
  const auto entry = reinterpret_cast<lockstep_mpi_entry>(::dlsym(library, LOCKSTEP_MPI_ENTRY));
  if (entry == nullptr)
    return wrong(fmt::format("{} is no MPI plug-in of Lockstep: it has no {}", path, LOCKSTEP_MPI_ENTRY));
  const lockstep_mpi_plugin* const table = entry();
  if (table->abi_version != LOCKSTEP_MPI_ABI_VERSION || table->size != sizeof(lockstep_mpi_plugin)) {
    return wrong(
        fmt::format("{} has version {} of the plug-in interface, this library needs {}: it was built with another "
                    "Lockstep; build and install both together",
                    path, table->abi_version, LOCKSTEP_MPI_ABI_VERSION));
  }
  return Plugin{table, path};
}

}  // namespace

Result<std::string> choose_plugin(const std::string& backend, const std::optional<std::string>& linked,
                                  const Environment& environment) {
  std::string of_program;
  if (linked) {
    if (linked->find("Open MPI") != std::string::npos) of_program = "openmpi";
    if (linked->find("MPICH") != std::string::npos) of_program = "mpich";
    if (of_program.empty()) {
      return wrong(
          fmt::format("the program is linked with an MPI that Lockstep does not support (\"{}\"); it supports Open "
                      "MPI and MPICH",
                      printable(linked->substr(0, 60))));
    }
  }
  const std::string launcher = started_by(environment);
  const std::string chosen = backend != "mpi" ? backend : !of_program.empty() ? of_program : launcher;
  if (!of_program.empty() && of_program != chosen) {
    return wrong(
        fmt::format("backend \"{}\" was asked for, but the program is linked with {}; use backend \"{}\" or \"mpi\"",
                    backend, full_name(of_program), of_program));
  }
  const bool other_launcher = !chosen.empty() && !launcher.empty() && launcher != chosen;
  if (other_launcher && (launcher == "openmpi" || !serves_any_mpi(environment))) {
    return wrong(
        fmt::format("{} was asked for, but this process was started by the mpirun of {}: start the program with "
                    "mpirun.{}, or use backend \"mpi\", which takes the one that started it",
                    full_name(chosen), full_name(launcher), chosen));
  }
  return chosen;
}

std::vector<std::string> plugin_paths(const std::string& name, const std::string& folder,
                                      const std::vector<std::string>& run_path, const Environment& environment) {
  const std::string file = fmt::format("lockstep_mpi_{}.so", name);
  if (const auto setting = environment("LOCKSTEP_MPI_PLUGIN")) {
    std::error_code ignored;
    if (std::filesystem::is_directory(*setting, ignored)) return {*setting + "/" + file};
    return {*setting};
  }
  std::vector<std::string> paths;
  if (!folder.empty()) paths.push_back(folder + "/lockstep/" + file);
  for (const std::string& directory : run_path) paths.push_back(fmt::format("{}/{}", directory, file));
  return paths;
}

Result<std::string> find_plugin(const std::string& backend, const Environment& environment) {
  const Result<std::string> chosen = choose_plugin(backend, linked_mpi(), environment);
  if (!chosen.ok()) return chosen.status();
  // Without a launcher the process is a world of one rank, in whichever MPI there is.
  const std::vector<std::string> names =
      chosen->empty() ? std::vector<std::string>{"openmpi", "mpich"} : std::vector{*chosen};
  const OwnPlace here = own_place();
  std::vector<std::string> looked;
  for (const std::string& name : names) {
    for (const std::string& path : plugin_paths(name, here.folder, here.run_path, environment)) {
      if (::access(path.c_str(), R_OK) == 0) return path;
      looked.push_back(path);
    }
  }
  return Status(
      StatusCode::not_found,
      fmt::format(
          "no MPI plug-in for {} was built or installed: there is no {}. Install the MPI (Debian: libopenmpi-dev and "
          "openmpi-bin, or libmpich-dev and mpich) and build Lockstep again, or name the file that has it in "
          "LOCKSTEP_MPI_PLUGIN",
          names.size() == 1 ? full_name(names.front()) : "Open MPI or MPICH", fmt::join(looked, ", ")));
}

Result<Plugin> load_plugin(const std::string& backend, const Environment& environment) {
  const Result<std::string> path = find_plugin(backend, environment);
  if (!path.ok()) return path.status();
  // Global: the components that Open MPI loads by itself search its symbols there. Deep: the plug-in finds its own MPI
  // first, if a library of the program (LibTorch 2.x in Debian) has loaded another one. Only then: a deep
  // library does not share what the program replaces (malloc, environ), and an MPI with which the program itself is
  // linked must be shared, since MPI_COMM_WORLD and the like are copies in the program.
  const bool brought = ::dlsym(RTLD_DEFAULT, "MPI_Init_thread") != nullptr && !linked_mpi();
  const int deep = brought ? RTLD_DEEPBIND : 0;
  if (void* const library = ::dlopen(path->c_str(), RTLD_NOW | RTLD_GLOBAL | deep)) return use(*path, library);
  return Status(StatusCode::unavailable,
                fmt::format("the MPI plug-in {} cannot be loaded: {}. Is its MPI installed?", *path, ::dlerror()));
}

}  // namespace lockstep::mpi
