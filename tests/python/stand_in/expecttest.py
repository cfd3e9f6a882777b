"""A stand-in for the package expecttest, which PyTorch's test utilities import and Debian 12 lacks.

Only what torch.testing._internal.common_utils uses: a base class, and a flag that is never set.
"""
import unittest

ACCEPT = False


class TestCase(unittest.TestCase):
    longMessage = True
