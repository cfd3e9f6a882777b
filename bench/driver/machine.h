// Properties of the machine that the benchmarks need.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::bench {

// The size of the last-level cache; 32 MiB if the system does not report it.
std::size_t cache_bytes();
// One core per rank, or nothing if there are more ranks than cores that this process may use.
std::vector<int> cores_for(int ranks);
// The folder of the worker programs: ../libexec/lockstep, relative to the folder of the running program.
std::string worker_folder();
// For headings: "AMD EPYC, 2 cores, 32 MiB of cache".
std::string describe_machine();
// A Python that has PyTorch: LOCKSTEP_PYTHON, the one in PATH, or the system's (a virtual environment hides Debian's
// python3-torch). Empty if there is none.
std::string python_with_torch();
inline constexpr const char* kTorchIsMissing =
    "torch is missing: no python3 can import it (Debian: apt-get install python3-torch; or set LOCKSTEP_PYTHON)";
// The load average of the last minute, as in uptime(1).
double load_average();
// 32 random bytes as hexadecimal digits.
std::string random_secret();

}  // namespace lockstep::bench
