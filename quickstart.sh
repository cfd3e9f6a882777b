#!/bin/sh
# ./quickstart.sh: builds the engine and lets two processes of this machine sum a vector.
set -eu
cd "$(dirname "$0")"
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

say "1/3  Packages"
tools/setup

say "2/3  Building (a minute or two the first time)"
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
mkdir -p build
cmake --preset release -B build/quickstart -DLOCKSTEP_BUILD_TESTS=OFF -DLOCKSTEP_BUILD_BENCH=OFF >build/quickstart.log 2>&1 &&
  cmake --build build/quickstart --target example_01_all_reduce >>build/quickstart.log 2>&1 || {
  cat build/quickstart.log
  exit 1
}

say "3/3  Two processes, one sum"
# A port that nobody listens on; rank 0 opens it and the other rank finds it there.
port=29500
while grep -qi ":$(printf %04X $port) " /proc/net/tcp /proc/net/tcp6 2>/dev/null; do port=$((port + 1)); done
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
program=build/quickstart/examples/01_all_reduce
RANK=1 $program &
other=$!
RANK=0 $program || { kill $other 2>/dev/null; exit 1; }
wait $other

cat <<END

What happened: two processes found each other at 127.0.0.1:$port. Each filled 25 MiB of registered memory
with its own number (1 and 2), and all_reduce left the sum, 3, in both: each process reduced one half,
straight in the memory of both. The program is examples/01_all_reduce/main.cpp. Next: README.md.
END
