"""The package's type hints: mypy accepts the package and a program that uses it, and finds the errors in another one.

PyTorch itself is not checked: its classes count as Any, which also makes this a matter of seconds.
"""
import os
import subprocess
import sys
import tempfile
import unittest

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")
GOOD = """
import datetime
import lockstep
text: str = lockstep.describe() + lockstep.describe_rank(0, None) + lockstep.algorithm_table() + lockstep.health()
lockstep.monitored_barrier(timeout=datetime.timedelta(seconds=1), wait_all_ranks=True)
lockstep.abort("the loss is NaN")
print(lockstep.__version__.split("."))
"""
BAD = """
import lockstep
lockstep.describe_rank("0")
lockstep.abort()
lockstep.health() + 1
lockstep.no_such_function()
"""


class Typing(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="lockstep-typing-")
        self.addCleanup(self.folder.cleanup)

    def mypy(self, *arguments):
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=skip", "--cache-dir", self.folder.name,
                               *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder.name,
                              env={**os.environ, "MYPYPATH": PACKAGE})
        return done.returncode, done.stdout

    def check_program(self, text):
        with open(os.path.join(self.folder.name, "program.py"), "w") as file:
            file.write(text)
        # --follow-imports=skip would hide the package, too, unless it is named.
        return self.mypy("program.py", *(os.path.join(PACKAGE, "lockstep", name)
                                         for name in ("__init__.py", "_groups.py", "_load.py", "_lockstep.pyi")))

    def test_the_package(self):
        code, output = self.mypy("-p", "lockstep")
        self.assertEqual(code, 0, output)

    def test_a_program(self):
        code, output = self.check_program(GOOD)
        self.assertEqual(code, 0, output)

    def test_errors_of_a_program_are_found(self):
        _, output = self.check_program(BAD)
        found = [line.split(":")[1] for line in output.splitlines() if line.startswith("program.py:") and " error: " in line]
        self.assertEqual(found, ["3", "4", "5", "6"], output)

    def test_the_stub_is_that_of_the_extension_module(self):
        import lockstep._load
        with open(os.path.join(PACKAGE, "lockstep", "_lockstep.pyi")) as file:
            names = {line.split("(")[0].split(":")[0].removeprefix("def ") for line in file
                     if line.startswith("def ") or line.split(":")[0].isidentifier() and ": str" in line}
        real = {name for name in dir(lockstep._load.extension) if not name.startswith("_")}
        self.assertEqual(names, real)


if __name__ == "__main__":
    if subprocess.run([sys.executable, "-m", "mypy", "--version"], capture_output=True).returncode != 0:
        print("skipped: mypy is missing (Debian: apt-get install mypy)")
        sys.exit(77)
    sys.exit(unittest.main())
