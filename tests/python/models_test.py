"""Models that go both ways between Python and C++: examples 11 and 12, from one end to the other.

models_test.py EXAMPLES    the folder of the compiled examples
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
EXAMPLES = None


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150)
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


def accuracies(output):
    return [float(number) for number in re.findall(r"test accuracy ([0-9.]+) %", output)]


class Models(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="lockstep-models-")
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def python(self, script, *arguments):
        return run(sys.executable, os.path.join(SOURCES, script), *arguments)

    def train_scripted(self, model, *options):
        self.python("11_torchscript/model.py", "define", self.path("model.pt"), "--model", model)
        output = run(os.path.join(EXAMPLES, "11_torchscript"), "--model", self.path("model.pt"), "--out",
                     self.path("trained.pt"), *options)
        self.assertIn("2 replicas, bit-identical", output)
        in_python = accuracies(self.python("11_torchscript/model.py", "evaluate", self.path("trained.pt")))
        # A score that is a tie but for rounding may fall to either side.
        self.assertAlmostEqual(accuracies(output)[-1], in_python[0], delta=0.021)
        return in_python[0]

    def test_a_model_defined_in_python_is_trained_in_cpp_and_evaluated_in_python(self):
        self.assertGreater(self.train_scripted("cnn", "--samples", "6000"), 70)

    def test_the_same_program_trains_another_model(self):
        self.assertGreater(self.train_scripted("mlp", "--samples", "12000"), 70)

    def test_weights_from_python_are_fine_tuned_in_cpp_and_evaluated_in_python(self):
        self.python("12_fine_tuning/net.py", "pretrain", self.path("pretrained.pt"), "--steps", "100")
        output = run(os.path.join(EXAMPLES, "12_fine_tuning"), "--weights", self.path("pretrained.pt"), "--out",
                     self.path("finetuned.pt"), "--steps", "80")
        self.assertIn("16 tensors loaded; different: classifier.2.bias", output)
        self.assertIn("2 replicas, bit-identical", output)
        before, after = accuracies(output)
        self.assertLess(before, 50)  # its last layer is random, and it has not seen five of the classes
        self.assertGreater(after, 70)
        in_python = accuracies(self.python("12_fine_tuning/net.py", "evaluate", self.path("finetuned.pt")))
        self.assertAlmostEqual(after, in_python[0], delta=0.021)


if __name__ == "__main__":
    EXAMPLES = os.path.abspath(sys.argv.pop(1))
    sys.exit(unittest.main())
