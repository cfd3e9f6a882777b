#!/bin/sh
# check_layers.sh ROOT: rejects what the design of the repository at ROOT does not allow.
#   - an include against the order of the layers, or from a layer that has no line in the table
#   - torch, ATen or c10 outside ddp and python; Python's or pybind11's headers outside python; mpi.h outside mpi_plugin
#   - public headers (include/) that need private ones (src/) or any library's
#   - public headers of the engine that are missing in lockstep/engine.h, or of ddp in lockstep/lockstep.h
#   - headers without #pragma once
#   - files of more than 500 lines
# One line for each violation, "file:line: what is wrong"; exit code 1 if there is any.
set -eu
cd "$1"

# layer: the layers whose headers it may include, besides its own
layers='
base:
store: base
transport: base
rendezvous: base store transport
collectives: base transport
optim: base collectives
record: base collectives
communicator: base store transport rendezvous collectives record
membership: base store
elastic: base store transport rendezvous collectives record communicator membership
checkpoint: base
mpi: base store transport rendezvous collectives record communicator
mpi_plugin: mpi collectives
ddp: base store transport rendezvous collectives record communicator membership elastic checkpoint mpi optim
python: base store transport rendezvous collectives record communicator ddp
dashboard: base collectives record
launch: base store transport rendezvous record dashboard communicator membership elastic
doctor: base store rendezvous launch
cli: base store transport rendezvous collectives record dashboard communicator membership elastic checkpoint launch doctor
'
max_lines=500

folders=
for folder in include src python tests bench examples tools; do
  [ ! -d "$folder" ] || folders="$folders $folder"
done

check_includes() {
  find include src -name '*.h' -o -name '*.cpp' | sort | xargs awk -v table="$layers" '
    BEGIN {
      count = split(table, lines, "\n")
      for (i = 1; i <= count; i++) {
        if (lines[i] == "") continue
        separator = index(lines[i], ":")
        layer = substr(lines[i], 1, separator - 1)
        known[layer] = 1
        allowed[layer, layer] = 1
        n = split(substr(lines[i], separator + 1), names, " ")
        for (j = 1; j <= n; j++) allowed[layer, names[j]] = 1
      }
    }
    function violation(what) { printf "%s:%d: %s\n", FILENAME, FNR, what }
    FNR == 1 {
      is_public = FILENAME ~ /^include\//
      path = FILENAME
      sub(/^src\//, "", path)
      sub(/^include\/lockstep\//, "", path)
      # include/lockstep/x.h includes the public headers of several layers and belongs to none. Public headers are in the
      # folder of their namespace: these two belong to the layer ddp nevertheless.
      own = index(path, "/") ? substr(path, 1, index(path, "/") - 1) : ""
      if (is_public && path ~ /^(elastic\/|checkpoint\/snapshot\.h$)/) own = "ddp"
      if (own != "" && !(own in known)) violation("layer " own " has no line in tests/layering/check_layers.sh")
    }
    /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
      quoted = $0 ~ /include[ \t]*"/
      name = $0
      sub(/^[^<"]*[<"]/, "", name)
      sub(/[>"].*$/, "", name)
      if (name ~ /\.\.\//) { violation("\"" name "\" goes through ..; write the path from src/ or include/"); next }
      if (name ~ /^(torch|ATen|c10|caffe2)\//) {
        if (own != "ddp" && own != "python") violation("<" name "> outside ddp: everything below ddp is torch-free")
        next
      }
      if (name == "Python.h" || name ~ /^pybind11\//) {
        if (own != "python") violation("<" name "> outside python: only the Python module needs Python")
        next
      }
      if (name == "mpi.h") {
        if (own != "mpi_plugin") violation("<mpi.h> outside mpi_plugin: only plug-ins use MPI")
        next
      }
      other = name
      is_ours = sub(/^lockstep\//, "", other)
      first = index(other, "/") ? substr(other, 1, index(other, "/") - 1) : ""
      if (is_ours || first in known) {
        if (is_public && !is_ours) violation("public header includes the private \"" name "\"")
        if (first == "" || own == "") next
        if (!((own, first) in allowed)) violation("layer " own " must not include \"" name "\" of layer " first)
      } else if (is_public && (quoted || index(name, "/"))) {
        violation("public header includes \"" name "\": users have only the standard library and lockstep/")
      } else if (quoted && first == "") {
        violation("\"" name "\" hides its layer; write the path from src/")
      }
    }'
}

# x-inl.h is Highway's name for a file that is compiled once for each instruction set.
check_headers() {
  find $folders -name '*.h' ! -name '*-inl.h' | sort | while read -r file; do
    grep -q '^#pragma once$' "$file" || echo "$file:1: no #pragma once"
  done
}

check_umbrella() {
  for layer in base store transport rendezvous collectives record communicator optim; do
    [ -d "include/lockstep/$layer" ] || continue
    find "include/lockstep/$layer" -name '*.h' | sort | while read -r file; do
      grep -qF "#include \"${file#include/}\"" include/lockstep/engine.h || echo "$file:1: not in lockstep/engine.h"
    done
  done
  [ -d include/lockstep/ddp ] || return 0
  find include/lockstep/ddp include/lockstep/elastic include/lockstep/checkpoint -name '*.h' 2>/dev/null | sort |
    while read -r file; do
    grep -qF "#include \"${file#include/}\"" include/lockstep/lockstep.h || echo "$file:1: not in lockstep/lockstep.h"
  done
}

check_lengths() {
  find $folders -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.c' -o -name '*.cc' -o -name '*.py' -o -name '*.sh' \) |
    sort | while read -r file; do
    lines=$(wc -l <"$file")
    [ "$lines" -le "$max_lines" ] || echo "$file:$lines: $lines lines; split a file of more than $max_lines"
  done
}

violations=$(check_includes && check_umbrella && check_headers && check_lengths)
[ -n "$violations" ] || exit 0
echo "$violations"
exit 1
