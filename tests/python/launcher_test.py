"""The example under every launcher: `lockstep run`, torchrun, mpirun, srun's and mpirun's variables, and by hand."""
import os
import re
import shutil
import subprocess
import sys
import unittest

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python")
EXAMPLE = os.path.join(EXAMPLES, "train.py")
ARGUMENTS = [EXAMPLE, "--steps", "20", "--samples", "400"]


def run(command, **variables):
    environment = {**os.environ, **variables}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, timeout=100)
    return done.returncode, done.stdout


class Launchers(unittest.TestCase):
    def check(self, command, **variables):
        code, output = run(command, **variables)
        self.assertEqual(code, 0, output)
        self.assertIn("2 ranks on 1 host", output)
        self.assertIn("all ranks have the same parameters", output)

    def test_lockstep_run(self):
        launcher = os.environ.get("LOCKSTEP_COMMAND", "lockstep")
        if shutil.which(launcher) is None:
            self.skipTest("the lockstep command was not built")
        self.check([launcher, "run", "--nproc-per-node", "2", "--python", sys.executable, *ARGUMENTS])

    def test_torchrun(self):
        self.check([sys.executable, "-m", "lockstep.torchrun", "--standalone", "--nproc_per_node", "2", *ARGUMENTS])

    def test_mpirun(self):
        mpirun = shutil.which("mpirun.openmpi")
        if mpirun is None:
            self.skipTest("mpirun.openmpi is missing (Debian: apt-get install openmpi-bin)")
        self.check([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, *ARGUMENTS],
                   OMPI_MCA_rmaps_base_oversubscribe="1")

    def test_variables_of_slurm(self):
        ranks = []
        for rank in range(2):
            variables = dict(SLURM_JOB_ID="4711", SLURM_STEP_ID=str(os.getpid() % 1000), SLURM_PROCID=str(rank),
                             SLURM_NTASKS="2", SLURM_LOCALID=str(rank), SLURM_STEP_NUM_TASKS="2",
                             SLURM_STEP_NODELIST="localhost", SLURM_JOB_NUM_NODES="1", SLURM_STEP_NUM_NODES="1",
                             SLURM_STEP_TASKS_PER_NODE="2", SLURM_NNODES="1", SLURM_JOB_NODELIST="localhost",
                             SLURM_NODELIST="localhost", SLURM_TASKS_PER_NODE="2")
            ranks.append(subprocess.Popen([sys.executable, *ARGUMENTS], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                          text=True, env={**os.environ, **variables}))
        outputs = [rank.communicate(timeout=100)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], outputs)
        self.assertIn("2 ranks on 1 host", outputs[0])

    def test_the_example_of_a_killed_rank(self):
        if shutil.which(os.environ.get("LOCKSTEP_COMMAND", "lockstep")) is None:
            self.skipTest("the lockstep command was not built")
        code, output = run([sys.executable, os.path.join(EXAMPLES, "killed_rank.py")])
        self.assertEqual(code, 0, output)
        gloo, ours = output.split("===== lockstep:")
        for part in (gloo, ours):
            pid, = re.findall(r"^\$ kill -9 (\d+)", part, re.MULTILINE)
            self.assertIn("rank 0: backward() raised", part)
            self.assertRegex(part, rf"(?s)rank 1 failed first, with signal 9.*pid {pid}")
        self.assertNotIn("rank 1 (host", gloo)
        for rank in (0, 2):
            self.assertRegex(ours, rf"all_reduce\(count 55510, f32, sum\) .* failed on rank {rank} .*: rank 1 \(host .*, pid {pid}\)")

    def test_info(self):
        code, output = run([sys.executable, "-m", "lockstep", "--info"])
        self.assertEqual(code, 0, output)
        self.assertIn('"lockstep" is registered', output)


if __name__ == "__main__":
    sys.exit(unittest.main())
