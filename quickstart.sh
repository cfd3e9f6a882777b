#!/bin/sh
# ./quickstart.sh: installs missing packages, builds, and trains Fashion-MNIST on two processes of this machine.
# Needs root or sudo only if packages are missing.
set -eu
cd "$(dirname "$0")"
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

say "1/3  Packages"
tools/setup

say "2/3  Building (a few minutes the first time)"
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1; fi
mkdir -p build
cmake --preset release -B build/quickstart -DLOCKSTEP_BUILD_TESTS=OFF -DLOCKSTEP_BUILD_BENCH=OFF -DLOCKSTEP_BUILD_DDP=ON \
  >build/quickstart.log 2>&1 &&
  cmake --build build/quickstart --target example_03_fashion_mnist >>build/quickstart.log 2>&1 || {
  cat build/quickstart.log
  exit 1
}

say "3/3  Fashion-MNIST: a small convolutional network on two processes"
build/quickstart/examples/03_fashion_mnist --nproc 2 --epochs 3 --compare 1

cat <<END

What happened: the program started two processes. Each has a replica of the model and trains on a different half of the
images of every epoch. Gradients are averaged while backward() is still running. At the end, the parameters of both
processes were compared bit by bit. The program is examples/03_fashion_mnist/main.cpp. Next: README.md.
END
