"""pip install of the tree into a fresh virtual environment, without network, and use of what was installed.

install_test.py ROOT [EXTENSION]

With an extension module that was built before, only the rest of the installation is tested, which takes seconds.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = None
BUILD = {}  # variables for the build
PROGRAM = """
import torch, lockstep, torch.distributed as dist
dist.init_process_group("lockstep", store=dist.HashStore(), rank=0, world_size=1)
tensor = torch.ones(3)
dist.all_reduce(tensor)
print(lockstep.__file__, tensor.tolist())
"""


def run(*command, **variables):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/",
                          env={**environment, **variables})
    return done.returncode, done.stdout


def run_or_fail(*command, **variables):
    code, output = run(*command, **variables)
    assert code == 0, f"{command}:\n{output}"
    return output


# Without an index, any download fails.
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")


class Install(unittest.TestCase):
    @classmethod
    def make_venv(cls, name, *options):
        run_or_fail(sys.executable, "-m", "venv", "--system-site-packages", *options, os.path.join(cls.folder.name, name))
        return os.path.join(cls.folder.name, name, "bin", "python")

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="lockstep-install-")
        # The wheel and the package below need the same compilation.
        BUILD["LOCKSTEP_BUILD_FOLDER"] = os.path.join(cls.folder.name, "build")
        cls.python = cls.make_venv("venv")
        run_or_fail(cls.python, *PIP, "install", "--no-index", ROOT, **BUILD)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_the_installed_package_works(self):
        code, output = run(self.python, "-c", PROGRAM)
        self.assertEqual(code, 0, output)
        self.assertIn(self.folder.name, output)
        self.assertIn("[1.0, 1.0, 1.0]", output)

    def test_a_wheel_needs_no_compiler(self):
        wheels = os.path.join(self.folder.name, "wheels")
        run_or_fail(self.python, *PIP, "wheel", "--no-index", "--no-deps", "--wheel-dir", wheels, ROOT, **BUILD)
        wheel, = os.listdir(wheels)
        other = self.make_venv("other", "--without-pip")
        alone = {"PATH": os.path.dirname(other)}  # no compiler, no cmake
        run_or_fail(self.python, *PIP, "--python", other, "install", "--no-index", os.path.join(wheels, wheel), **alone)
        output = run_or_fail(other, "-c", PROGRAM, **alone)
        self.assertIn(os.path.join(self.folder.name, "other"), output)
        self.assertIn("[1.0, 1.0, 1.0]", output)

    def test_a_debian_package_trains_on_two_ranks(self):
        if shutil.which("dpkg-shlibdeps") is None:
            self.skipTest("dpkg-shlibdeps is missing (Debian: apt-get install dpkg-dev)")
        run_or_fail(sys.executable, os.path.join(ROOT, "python", "build_backend", "lockstep_deb.py"), self.folder.name, **BUILD)
        package, = [os.path.join(self.folder.name, name) for name in os.listdir(self.folder.name) if name.endswith(".deb")]
        depends = run_or_fail("dpkg-deb", "--field", package, "Depends")
        for needed in ("python3 (<< 3.", "python3-torch (<<", "libtorch", "libfmt", "libspdlog", "libhwy", "libssl", "libc6"):
            self.assertIn(needed, depends)
        # apt would install it here, so its dependencies are met.
        self.assertIn("Inst python3-lockstep", run_or_fail("apt-get", "--simulate", "--no-download", "install", package))
        root = os.path.join(self.folder.name, "root")
        run_or_fail("dpkg-deb", "--extract", package, root)
        installed = os.path.join(root, "usr", "lib", "python3", "dist-packages")
        output = run_or_fail(sys.executable, "-m", "lockstep.torchrun", "--standalone", "--nproc_per_node", "2",
                             os.path.join(ROOT, "examples", "python", "train.py"), "--steps", "20", "--samples", "400",
                             PYTHONPATH=installed)
        self.assertIn("2 ranks on 1 host", output)
        self.assertIn("all ranks have the same parameters", output)
        self.assertEqual([name for name in os.listdir(os.path.join(installed, "lockstep")) if name.startswith("lib")], [])

    def test_info(self):
        code, output = run(self.python, "-m", "lockstep", "--info")
        self.assertEqual(code, 0, output)
        self.assertIn('"lockstep" is registered', output)

    def test_the_engines_libraries_are_part_of_the_package(self):
        package = os.path.dirname(run(self.python, "-c", "import lockstep; print(lockstep.__file__)")[1].strip())
        extension, = [name for name in os.listdir(package) if name.startswith("_lockstep.") and name.endswith(".so")]
        _, output = run("ldd", os.path.join(package, extension))
        for library in ("libfmt", "libspdlog", "libhwy"):
            line = next(line for line in output.splitlines() if library + ".so" in line)
            self.assertIn(package, line)

    def test_another_pytorch_is_one_sentence(self):
        code, output = run(self.python, "-c", "import torch; torch.__version__ = '9.1.0'; import lockstep")
        self.assertEqual(code, 1, output)
        last = output.strip().splitlines()[-1]
        self.assertRegex(last, r"ImportError: lockstep was built for PyTorch .*, but this Python has PyTorch 9\.1\.0")


if __name__ == "__main__":
    ROOT = os.path.abspath(sys.argv.pop(1))
    if len(sys.argv) > 1:
        BUILD["LOCKSTEP_EXTENSION"] = os.path.abspath(sys.argv.pop(1))
    sys.exit(unittest.main())
