#!/bin/sh
# check_linked.sh PLUGINS FILE...: each plug-in in the folder PLUGINS needs its MPI, and none of the FILEs needs any.
set -eu
plugins=$1
shift
failures=0
needs_mpi() { readelf -d "$1" | grep -qE 'NEEDED.*\[libmpi'; }
for plugin in "$plugins"/lockstep_mpi_*.so; do
  needs_mpi "$plugin" || { echo "$plugin: does not need an MPI; this check proves nothing then"; failures=1; }
  others=$(nm -D --defined-only "$plugin" | grep ' T ' | grep -v ' lockstep_mpi_plugin_entry$') || true
  [ -z "$others" ] || { echo "$plugin: exports more than its entry: $others"; failures=1; }
done
for file in "$@"; do
  if needs_mpi "$file"; then
    echo "$file: is linked with MPI; only plug-ins may be"
    failures=1
  fi
done
exit $failures
