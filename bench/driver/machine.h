// What the benchmark must know of the machine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::bench {

// Of the last level; 32 MiB if the system does not say.
std::size_t cache_bytes();
// One core per rank, or nothing when there are more ranks than cores that this process may use.
std::vector<int> cores_for(int ranks);
// Where the worker programs are: ../libexec/lockstep beside the running program.
std::string worker_folder();
// For headings: "AMD EPYC, 2 cores, 32 MiB of cache".
std::string describe_machine();
// A Python that has PyTorch: LOCKSTEP_PYTHON, the one in PATH, or the system's (a virtual environment hides Debian's
// python3-torch). Empty if there is none.
std::string python_with_torch();
inline constexpr const char* kTorchIsMissing =
    "torch is missing: no python3 can import it (Debian: apt-get install python3-torch; LOCKSTEP_PYTHON names one)";
// The load of the last minute, as uptime(1) says it.
double load_average();
// 32 random bytes as hexadecimal digits.
std::string random_secret();

}  // namespace lockstep::bench
