#!/bin/sh
# Proves that check_layers.sh catches each kind of violation, and only those.
set -eu
checker=$(dirname "$0")/check_layers.sh
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
failures=0

fresh_tree() {
  rm -rf "$root/include" "$root/src"
  mkdir -p "$root/include/lockstep/base" "$root/include/lockstep/ddp" "$root/src/base" "$root/src/store" \
    "$root/src/transport/shm" "$root/src/collectives" "$root/src/communicator" "$root/src/ddp"
  printf '#pragma once\n#include <string>\n' >"$root/include/lockstep/base/status.h"
  printf '#pragma once\n#include "lockstep/base/status.h"\n#include "lockstep/base/x.h"\n' >"$root/include/lockstep/engine.h"
  printf '#pragma once\n#include <sys/socket.h>\n#include "lockstep/base/status.h"\n' >"$root/src/base/socket.h"
  printf '#pragma once\n#include "base/net/socket.h"\n' >"$root/src/transport/shm/area.h"
  printf '#include "collectives/ring.h"\n#include <fmt/format.h>\n#include "transport/shm/area.h"\n' \
    >"$root/src/collectives/ring.cpp"
  printf '#include <torch/torch.h>\n#include "base/net/socket.h"\n' >"$root/src/ddp/reducer.cpp"
}

# expect "<what>" <file> <content> <words of the message>
expect_violation() {
  fresh_tree
  mkdir -p "$(dirname "$root/$2")"
  printf "$3" >"$root/$2"
  if output=$(sh "$checker" "$root"); then
    echo "not caught: $1"
    failures=1
  elif [ "$(echo "$output" | wc -l)" != 1 ] || ! echo "$output" | grep -qF "$2:" || ! echo "$output" | grep -qF "$4"; then
    echo "wrong message for: $1; got: $output"
    failures=1
  fi
}

fresh_tree
if ! output=$(sh "$checker" "$root"); then
  echo "a tree without violations was rejected: $output"
  failures=1
fi

expect_violation "upward include" src/base/x.cpp '#include "store/y.h"\n' 'layer base must not include "store/y.h"'
expect_violation "upward public include" src/base/x.cpp '#include <lockstep/communicator/y.h>\n' 'of layer communicator'
expect_violation "sideways include" src/store/x.cpp '#include "transport/y.h"\n' 'of layer transport'
expect_violation "collectives without rendezvous" src/collectives/x.cpp '  #  include "rendezvous/y.h"\n' 'of layer rendezvous'
expect_violation "nested folder" src/transport/shm/x.cpp '#include "communicator/y.h"\n' 'layer transport must not'
expect_violation "unknown layer" src/mystery/x.cpp 'int x;\n' 'layer mystery has no line'
expect_violation "torch" src/communicator/x.cpp '#include <torch/torch.h>\n' 'outside ddp'
expect_violation "ATen" src/base/x.cpp '#include <ATen/ATen.h>\n' 'outside ddp'
expect_violation "MPI" src/communicator/x.cpp '#include <mpi.h>\n' 'outside mpi_plugin'
expect_violation "c10 in a public header" include/lockstep/base/x.h '#pragma once\n#include <c10/util/a.h>\n' 'outside ddp'
expect_violation "private header in a public one" include/lockstep/base/x.h '#pragma once\n#include "base/y.h"\n' 'private'
expect_violation "library in a public header" include/lockstep/base/x.h '#pragma once\n#include <fmt/format.h>\n' 'standard library'
expect_violation "public header that is missing in engine.h" include/lockstep/base/y.h '#pragma once\n' 'not in lockstep/engine.h'
expect_violation "parent folder" src/base/x.cpp '#include "../store/y.h"\n' 'goes through ..'
expect_violation "hidden layer" src/base/x.cpp '#include "y.h"\n' 'hides its layer'
expect_violation "no pragma once" src/base/x.h 'int x();\n' 'no #pragma once'
expect_violation "long file" src/base/x.cpp "$(yes 'int x;\n' | head -n 501 | tr -d '\n')" '501 lines'

exit $failures
