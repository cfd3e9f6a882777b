"""The build backend of the Python package (PEP 517): CMake builds the extension module, this makes the wheel.

pip runs it in an environment of its own, which has no PyTorch. The Python that has it is LOCKSTEP_PYTHON if that is set,
else the one that runs pip, else the system's; cmake/LockstepPython.cmake checks it. CMAKE_ARGS may contain further
arguments for CMake. LOCKSTEP_EXTENSION is an extension module that was built before, for this Python and PyTorch.
"""
import base64
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Libraries that the engine uses and that a host without compilers may lack: they are put beside the extension.
BUNDLED = ("libfmt", "libspdlog", "libhwy", "libxxhash")


def version():
    """Of the package, from the header."""
    with open(os.path.join(ROOT, "include", "lockstep", "version.h")) as file:
        return re.search(r'LOCKSTEP_VERSION "(.*)"', file.read()).group(1)


def _tag():
    python = "cp{}{}".format(*sys.version_info[:2])
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"{python}-{python}-{platform}"


def _metadata():
    with open(os.path.join(ROOT, "docs", "python.md")) as file:
        description = file.read()
    # No requirement: Debian's PyTorch has no metadata that pip would find, and pip must not download another one.
    return ("Metadata-Version: 2.1\nName: lockstep\nVersion: " + version() +
            "\nSummary: Backend \"lockstep\" for torch.distributed\nRequires-Python: >=3.9\n"
            "Description-Content-Type: text/markdown\n\n" + description)


def _wheel_file():
    return f"Wheel-Version: 1.0\nGenerator: lockstep_build\nRoot-Is-Purelib: false\nTag: {_tag()}\n"


def _python_with_torch():
    """A Python of this version that can import torch."""
    # With build isolation, pip's own Python hides the packages of the environment that it installs into.
    prefixes = [os.environ.get("LOCKSTEP_PYTHON"), sys.executable, os.path.join(sys.base_prefix, "bin", "python3"),
                "/usr/bin/python3"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for python in filter(None, prefixes):
        code = "import sys, torch; print(*sys.version_info[:2], torch.__version__)"
        found = subprocess.run([python, "-c", code], capture_output=True, text=True, env=clean)
        if found.returncode == 0 and found.stdout.split()[:2] == [str(part) for part in sys.version_info[:2]]:
            return python, found.stdout.split()[2], clean
    sys.exit("lockstep: no Python {}.{} that can import torch was found; install PyTorch first (Debian: apt-get install "
             "python3-torch), or set LOCKSTEP_PYTHON".format(*sys.version_info[:2]))


def _build(folder):
    """Builds the extension; returns its path and the PyTorch that it is for."""
    python, torch_version, environment = _python_with_torch()
    if "LOCKSTEP_EXTENSION" in os.environ:
        return os.environ["LOCKSTEP_EXTENSION"], torch_version
    subprocess.check_call(
        ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DLOCKSTEP_BUILD_TESTS=OFF",
         "-DLOCKSTEP_BUILD_COMMAND=OFF", "-DLOCKSTEP_BUILD_BENCH=OFF", "-DLOCKSTEP_BUILD_EXAMPLES=OFF",
         "-DLOCKSTEP_BUILD_DDP=ON", "-DLOCKSTEP_BUILD_PYTHON=ONLY", "-DLOCKSTEP_INSTALL=OFF", "-DLOCKSTEP_PYTHON=" + python,
         "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON", "-DBUILD_SHARED_LIBS=OFF",
         *shlex.split(os.environ.get("CMAKE_ARGS", ""))], env=environment)
    subprocess.check_call(["cmake", "--build", folder, "--target", "lockstep_python"], env=environment)
    package = os.path.join(folder, "python", "lockstep")
    extension, = [name for name in os.listdir(package) if name.startswith("_lockstep.")]
    return os.path.join(package, extension), torch_version


def _bundled(extension):
    """The libraries that go into the wheel, by the names under which the loader looks for them."""
    output = subprocess.check_output(["ldd", extension], text=True)
    found = re.findall(r"^\s*(\S+) => (\S+)", output, re.MULTILINE)
    return {name: path for name, path in found if name.split(".")[0] in BUNDLED}


def _write(archive, records, name, content, executable=False):
    entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
    entry.external_attr = (0o755 if executable else 0o644) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    records.append(f"{name},sha256={digest},{len(content)}")


def _read(path):
    with open(path, "rb") as file:
        return file.read()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    scratch = tempfile.mkdtemp(prefix="lockstep-wheel-")
    folder = os.environ.get("LOCKSTEP_BUILD_FOLDER", scratch)  # one that is kept makes the next build short
    try:
        extension, torch_version = _build(folder)
        name = f"lockstep-{version()}-{_tag()}.whl"
        records = []
        with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as archive:
            source = os.path.join(ROOT, "python", "lockstep")
            for file in sorted(os.listdir(source)):
                if os.path.isfile(os.path.join(source, file)):
                    _write(archive, records, "lockstep/" + file, _read(os.path.join(source, file)))
            _write(archive, records, "lockstep/_build.py",
                   f'"""Written by the build."""\ntorch_version = "{torch_version}"\n'.encode())
            _write(archive, records, "lockstep/" + os.path.basename(extension), _read(extension), executable=True)
            for library, path in sorted(_bundled(extension).items()):
                _write(archive, records, "lockstep/" + library, _read(path), executable=True)
            info = f"lockstep-{version()}.dist-info"
            _write(archive, records, info + "/METADATA", _metadata().encode())
            _write(archive, records, info + "/WHEEL", _wheel_file().encode())
            _write(archive, records, info + "/entry_points.txt", b"[torch.distributed.backends]\nlockstep = lockstep:register\n")
            _write(archive, records, info + "/LICENSE", _read(os.path.join(ROOT, "LICENSE")))
            archive.writestr(info + "/RECORD", "\n".join(records + [info + "/RECORD,,", ""]))
        return name
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Without it, pip would build the whole wheel to learn the package's name."""
    name = f"lockstep-{version()}.dist-info"
    os.makedirs(os.path.join(metadata_directory, name))
    for file, content in (("METADATA", _metadata()), ("WHEEL", _wheel_file())):
        with open(os.path.join(metadata_directory, name, file), "w") as output:
            output.write(content)
    return name


def build_sdist(sdist_directory, config_settings=None):
    sys.exit("lockstep: there is no source distribution; install from the repository: pip install .")


def get_requires_for_build_wheel(config_settings=None):
    return []
