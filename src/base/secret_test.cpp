// Where a secret is after a process has read it.
#include "lockstep/base/secret.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/unique_fd.h"
#include "support/process_set.h"

namespace lockstep {
namespace {

struct Mapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool dumped = true;
};

// The readable memory of this process, and whether a core dump has it.
std::vector<Mapping> readable_memory() {
  std::ifstream file("/proc/self/smaps");
  std::vector<Mapping> mappings;
  bool readable = false;
  for (std::string line; std::getline(file, line);) {
    Mapping mapping;
    std::array<char, 5> permissions{};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &mapping.begin, &mapping.end, permissions.data()) == 3) {
      readable = permissions[0] == 'r' && line.find("[v") == std::string::npos;
      if (readable) mappings.push_back(mapping);
    } else if (readable && line.starts_with("VmFlags:")) {
      mappings.back().dumped = line.find(" dd") == std::string::npos;
    }
  }
  return mappings;
}

// How often `text` is in memory that a core dump has.
int copies_in_a_core_dump(std::string_view text) {
  const UniqueFd memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  int copies = 0;
  std::vector<char> block(std::size_t{1} << 20);
  for (const Mapping& mapping : readable_memory()) {
    if (!mapping.dumped) continue;
    for (std::uintptr_t at = mapping.begin; at < mapping.end; at += block.size() / 2) {
      const auto own = reinterpret_cast<std::uintptr_t>(block.data());
      if (at < own + block.size() && own < at + block.size()) continue;  // what was read before
      const std::size_t wanted = std::min<std::size_t>(block.size(), mapping.end - at);
      const ssize_t got = ::pread(memory.get(), block.data(), wanted, static_cast<off_t>(at));
      if (got > 0 &&
          std::string_view(block.data(), static_cast<std::size_t>(got)).find(text) != std::string_view::npos) {
        ++copies;
      }
    }
  }
  return copies;
}

std::string output_of(const char* command) {
  FILE* const pipe = ::popen(command, "r");
  std::array<char, 256> line{};
  const std::string output = std::fgets(line.data(), line.size(), pipe) != nullptr ? line.data() : "";
  ::pclose(pipe);
  return output;
}

LOCKSTEP_PROCESS_ROLE(reads_its_secret) {
  const std::string known = random_hex(20);
  if (copies_in_a_core_dump(known) == 0) return 1;  // the search itself does not work
  const auto secret = Secret::from_environment();
  if (!secret.ok() || secret->empty()) return 2;
  if (copies_in_a_core_dump(secret->key()) != 0) return 3;
  std::ifstream file("/proc/self/environ", std::ios::binary);
  const std::string environment{std::istreambuf_iterator<char>(file), {}};
  if (environment.find(secret->key()) != std::string::npos) return 4;
  if (!output_of("echo $LOCKSTEP_SECRET").starts_with("(taken by process ")) return 5;
  const pid_t forked = ::fork();
  if (forked == 0) ::_exit(Secret::from_environment()->key() == secret->key() ? 0 : 1);
  int status = -1;
  ::waitpid(forked, &status, 0);
  return status == 0 ? 0 : 6;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST(SecretMemory, NeitherCoreDumpsNorStartedProgramsHaveTheSecret) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer keeps copies of the environment, and terabytes of memory";
  auto ranks = testing::start_ranks(1, "reads_its_secret", {.environment = {{"LOCKSTEP_SECRET", random_hex(32)}}});
  ASSERT_TRUE(ranks.wait_all(testing::in_seconds(30))) << ranks.report();
  EXPECT_EQ(ranks.exit_status(0)->code, 0) << ranks.report();
}

// The first one overwrites the variable; the others must not find it half overwritten.
LOCKSTEP_PROCESS_ROLE(threads_read_a_secret) {
  std::atomic<int> failed = 0;
  for (int round = 0; round < 300; ++round) {
    const std::string secret = random_hex(1000);
    ::setenv("LOCKSTEP_SECRET", secret.c_str(), 1);
    std::atomic<int> ready = 0;
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (++ready; ready < 4;) std::this_thread::yield();
        const auto read = Secret::from_environment();
        if (!read.ok() || read->key() != secret) ++failed;
      });
    }
  }
  return failed == 0 ? 0 : 1;
}

TEST(SecretMemory, ThreadsMayReadTheSecretAtTheSameTime) {
  auto ranks = testing::start_ranks(1, "threads_read_a_secret");
  ASSERT_TRUE(ranks.wait_all(testing::in_seconds(60))) << ranks.report();
  EXPECT_EQ(ranks.exit_status(0)->code, 0) << ranks.report();
}

TEST(SecretMemory, CopiesShareTheKey) {
  const Secret first("0123456789abcdef0123456789abcdef");
  const Secret second = first;
  EXPECT_EQ(static_cast<const void*>(first.key().data()), second.key().data());
  EXPECT_TRUE(Secret("").empty());
  EXPECT_EQ(Secret().key(), "");
}

}  // namespace
}  // namespace lockstep
