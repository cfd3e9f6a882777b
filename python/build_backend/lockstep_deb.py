#!/usr/bin/env python3
"""Builds the Debian package python3-lockstep: lockstep_deb.py FOLDER

The package is for the system's Python and PyTorch, and depends on exactly these, because it is built with their headers.
Other variables are those of lockstep_build.py. Needs dpkg-dev.
"""
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import lockstep_build

CONTROL = """Package: python3-lockstep
Version: {version}
Architecture: {architecture}
Maintainer: Lockstep <lockstep@localhost>
Section: python
Priority: optional
Installed-Size: {kilobytes}
Depends: {depends}
Description: backend "lockstep" for torch.distributed
 PyTorch's DistributedDataParallel and all collectives on CPU tensors, over
 shared memory on one host and authenticated connections between hosts. Results
 have the same bits on every rank, and errors name the lost rank, its host and
 process.
"""


def _output(*command, **options):
    return subprocess.check_output(command, text=True, **options)


def _library_depends(extension, scratch):
    """The packages of the libraries that the extension loads, as "libfmt9 (>= 9.1.0), ..."."""
    # dpkg-shlibdeps wants to be in a source package.
    os.makedirs(os.path.join(scratch, "debian"))
    with open(os.path.join(scratch, "debian", "control"), "w") as file:
        file.write("Source: lockstep\n\nPackage: python3-lockstep\nArchitecture: any\n")
    output = _output("dpkg-shlibdeps", "-O", "--warnings=0", "-e", extension, cwd=scratch)
    return re.search(r"^shlibs:Depends=(.*)$", output, re.MULTILINE).group(1)


def _next(version):
    """"3.11" -> "3.12"."""
    major, minor = version.split(".")[:2]
    return f"{major}.{int(minor) + 1}"


def _depends(extension, torch_version, scratch):
    python = ".".join(platform.python_version_tuple()[:2])
    torch = ".".join(torch_version.split(".")[:2])
    return ", ".join([f"python3 (>= {python})", f"python3 (<< {_next(python)})", f"python3-torch (>= {torch})",
                      f"python3-torch (<< {_next(torch)})", _library_depends(extension, scratch)])


def build_deb(folder):
    """Writes the package into `folder`; returns its name."""
    with tempfile.TemporaryDirectory(prefix="lockstep-deb-") as scratch:
        os.chmod(scratch, 0o755)
        wheel = lockstep_build.build_wheel(scratch)
        root = os.path.join(scratch, "root")
        packages = os.path.join(root, "usr", "lib", "python3", "dist-packages")
        with zipfile.ZipFile(os.path.join(scratch, wheel)) as archive:
            archive.extractall(packages)
        package = os.path.join(packages, "lockstep")
        # Debian's own libraries take the place of those that a wheel has with it.
        for name in os.listdir(package):
            if name.startswith(lockstep_build.BUNDLED):
                os.remove(os.path.join(package, name))
        information, = [name for name in os.listdir(packages) if name.endswith(".dist-info")]
        os.remove(os.path.join(packages, information, "RECORD"))  # dpkg's files are not pip's to remove
        documents = os.path.join(root, "usr", "share", "doc", "python3-lockstep")
        os.makedirs(documents)
        shutil.move(os.path.join(packages, information, "LICENSE"), os.path.join(documents, "copyright"))
        extension, = [os.path.join(package, name) for name in os.listdir(package) if name.startswith("_lockstep.") and ".so" in name]
        with open(os.path.join(package, "_build.py")) as file:
            torch_version = re.search(r'torch_version = "(.*)"', file.read()).group(1)
        version, architecture = lockstep_build.version(), _output("dpkg", "--print-architecture").strip()
        os.makedirs(os.path.join(root, "DEBIAN"))
        with open(os.path.join(root, "DEBIAN", "control"), "w") as file:
            file.write(CONTROL.format(version=version, architecture=architecture,
                                      kilobytes=_output("du", "-sk", "--exclude=DEBIAN", root).split()[0],
                                      depends=_depends(extension, torch_version, scratch)))
        name = f"python3-lockstep_{version}_{architecture}.deb"
        subprocess.check_call(["chmod", "-R", "go=rX", root])
        subprocess.check_call(["dpkg-deb", "--root-owner-group", "--build", root, os.path.join(folder, name)])
        return name


if __name__ == "__main__":
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit("usage: lockstep_deb.py FOLDER (the package is written there)")
    build_deb(sys.argv[1])
