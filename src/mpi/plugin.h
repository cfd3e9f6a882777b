// Finds and loads the plug-in for the MPI of this job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "mpi/plugin_abi.h"
#include "rendezvous/environment.h"

namespace lockstep::mpi {

// "openmpi" and "mpich" are the names of plug-ins and of backends; "mpi" lets Lockstep choose.
//
// Which plug-in `backend` means, in this order: the one that it names; that of the MPI with which the program is
// linked or which it has started (`linked`: the text of MPI_Get_library_version, or nothing); that of the mpirun
// which started this process (OMPI_* is Open MPI's, PMI_* MPICH's); the only one that is installed. Pure.
// invalid_argument: the program is linked with another MPI, or was started by another's mpirun, than `backend` names.
Result<std::string> choose_plugin(const std::string& backend, const std::optional<std::string>& linked,
                                  const Environment& environment);

// The paths at which the plug-in may be, best first: LOCKSTEP_MPI_PLUGIN (a file, or the folder that has it; then
// nowhere else); `folder`/lockstep, where `folder` holds the library or program that contains this code; the folders of
// its run path. Pure, except that it checks whether LOCKSTEP_MPI_PLUGIN is a folder.
std::vector<std::string> plugin_paths(const std::string& name, const std::string& folder,
                                      const std::vector<std::string>& run_path, const Environment& environment);

// The file of the plug-in for `backend`, which exists. Loads nothing. not_found: none of the paths has it; names
// all of them, and what to install.
Result<std::string> find_plugin(const std::string& backend, const Environment& environment);

struct Plugin {
  const lockstep_mpi_plugin* table = nullptr;
  std::string path;
};

// Finds and loads it; it stays loaded until the process ends. invalid_argument: it is of another version, or no
// plug-in.
Result<Plugin> load_plugin(const std::string& backend, const Environment& environment);

}  // namespace lockstep::mpi
