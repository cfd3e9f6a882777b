// torchrun-style Python scripts: PyTorch's own store listens on MASTER_PORT.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "launch/launcher.h"
#include "support/python.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(LaunchPython, ScriptsThatTorchrunStartsRunUnchanged) {
  if (python_with_torch().empty()) GTEST_SKIP() << kNoPythonTorch;
  const TestFolder folder;
  std::ofstream(folder.path("train.py")) << "import os, sys, torch, torch.distributed as dist\n"
                                            "os.environ['USE_LIBUV'] = '0'\n"  // Debian's PyTorch 2.x has none
                                            "dist.init_process_group('gloo')\n"
                                            "x = torch.ones(3) * (dist.get_rank() + 1)\n"
                                            "dist.all_reduce(x)\n"
                                            "print('sum', x[0].item(), sys.argv[1:])\n";
  for (const char* restarts : {"0", "1"}) {
    Launcher launcher({"--nproc-per-node", "2", "--max-restarts", restarts, "--python", python_with_torch(),
                       folder.path("train.py"), "--epochs", "1"});
    EXPECT_EQ(launcher.wait(), 0) << launcher.report();
    EXPECT_THAT(launcher.out_lines(),
                UnorderedElementsAre("[rank 0] sum 3.0 ['--epochs', '1']", "[rank 1] sum 3.0 ['--epochs', '1']"));
  }
}

TEST(LaunchPython, AnExceptionIsTheReason) {
  const TestFolder folder;
  std::ofstream(folder.path("fail.py")) << "raise ValueError('no such data set')\n";
  Launcher launcher({folder.path("fail.py")});
  if (launcher.wait() == 2) GTEST_SKIP() << launcher.err();
  EXPECT_EQ(launcher.wait(), 1) << launcher.report();
  EXPECT_THAT(launcher.err(), HasSubstr("why      ValueError: no such data set\n"));
}

TEST(LaunchPython, ModulesRunToo) {
  Launcher launcher({"-m", "platform", "--terse"});
  if (launcher.wait() == 2) GTEST_SKIP() << launcher.err();
  EXPECT_EQ(launcher.wait(), 0) << launcher.report();
  EXPECT_THAT(launcher.out(), HasSubstr("Linux"));
}

}  // namespace
}  // namespace lockstep::testing
