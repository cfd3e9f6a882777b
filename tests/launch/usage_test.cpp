// Invalid input causes a one-line message and exit code 2, and nothing is started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "launch/launcher.h"
#include "support/reserved_port.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

void expect_usage_error(const std::vector<std::string>& arguments, const std::string& words,
                        const Environment& env = {}) {
  Launcher launcher(arguments, env);
  EXPECT_EQ(launcher.wait(), 2) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr(words));
  EXPECT_THAT(launcher.err(), ::testing::StartsWith("lockstep run: "));
  EXPECT_LE(std::ranges::count(launcher.err(), '\n'), 2) << launcher.err();
  EXPECT_EQ(launcher.out(), "");
  EXPECT_THAT(launcher.folders_left(), ::testing::IsEmpty());
}

TEST(LaunchUsage, WrongOptionsStartNothing) {
  const TestFolder folder;
  const std::string started = folder.path("started");
  const auto with_program = [&](std::vector<std::string> options) {
    options.insert(options.end(), {"touch", started});
    return options;
  };
  expect_usage_error(with_program({"--nproc-per-node", "0"}), "--nproc-per-node is '0'");
  expect_usage_error(with_program({"--nproc", "2"}), "unknown option '--nproc'");
  expect_usage_error(with_program({"--log-dir", "/proc/none"}), "cannot write to '/proc/none'");
  expect_usage_error(with_program({}), "PET_NNODES is 'two'", {{"PET_NNODES", "two"}});
  expect_usage_error(with_program({"--nnodes", "2"}), "--rdzv-endpoint");
  expect_usage_error(with_program({}), "LOCKSTEP_SECRET is set but empty", {{"LOCKSTEP_SECRET", ""}});
  EXPECT_NE(::access(started.c_str(), F_OK), 0);
}

TEST(LaunchUsage, ALogFolderThatIsAFileIsRefused) {
  const TestFolder folder;
  std::ofstream(folder.path("file")) << "x";
  expect_usage_error({"--log-dir", folder.path("file"), "true"}, "cannot write to");
}

TEST(LaunchUsage, APortInUseIsRefused) {
  ReservedPort reserved;
  const std::string port = std::to_string(reserved.port());
  const UniqueFd taken = reserved.listen();
  expect_usage_error({"--master-addr", "127.0.0.1", "--master-port", port, "true"}, port);
  expect_usage_error({"--master-addr", "127.0.0.1", "--master-port", port, "--serve-store", "no", "true"}, port);
}

TEST(LaunchUsage, AProgramThatCannotRunIsNamed) {
  const TestFolder folder;
  const std::string plain = folder.path("plain");
  std::ofstream(plain) << "#!/bin/sh\n";
  expect_usage_error({plain}, "is not executable; run chmod +x on it");
  expect_usage_error({folder.path()}, "is a directory");
  expect_usage_error({folder.path("none")}, "there is no program");
  expect_usage_error({"no-such-program-anywhere"}, "in PATH");
  expect_usage_error({folder.path("none.py")}, "there is no script");
  expect_usage_error({}, "the program is missing");

  const std::string garbage = folder.path("garbage");
  std::ofstream(garbage) << "neither";
  ::chmod(garbage.c_str(), 0755);
  expect_usage_error({garbage}, "neither a program for this machine nor a script");
  const std::string lost = folder.path("lost");
  std::ofstream(lost) << "#!/no/such/interpreter\n";
  ::chmod(lost.c_str(), 0755);
  expect_usage_error({"--nproc-per-node", "3", lost}, "its interpreter");
}

TEST(LaunchUsage, HelpListsTheOptions) {
  Launcher launcher({"--help"});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.out(), HasSubstr("--nproc-per-node"));
}

}  // namespace
}  // namespace lockstep::testing
