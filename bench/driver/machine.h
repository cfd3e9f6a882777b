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
// 32 random bytes as hexadecimal digits.
std::string random_secret();

}  // namespace lockstep::bench
