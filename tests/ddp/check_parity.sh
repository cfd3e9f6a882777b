#!/bin/sh
# check_parity.sh ROOT: every test that tests/ddp/pytorch_parity.md names (`file: Suite.Name`) is in that file, and every
# row names one or states why there is none.
set -eu
cd "$1"
table=tests/ddp/pytorch_parity.md
problems=$(
  grep -oE '`[^`]+: [A-Za-z0-9_]+\.[A-Za-z0-9_]+`' "$table" | tr -d '`' | sort -u | while IFS=' ' read -r file test; do
    file=${file%:}
    suite=${test%%.*}
    name=${test#*.}
    if [ ! -f "$file" ]; then
      echo "$table: no file $file"
    elif ! tr '\n' ' ' <"$file" | grep -qE "TEST(_F|_P)?\( *$suite, *$name\)"; then
      echo "$table: no test $suite.$name in $file"
    fi
  done
  grep -E '^\| ' "$table" | grep -vE '^\| PyTorch ' |
    grep -vE '`[^`]+: [A-Za-z0-9_]+\.[A-Za-z0-9_]+`|\| (not applicable|missing)[^|]*: ' | sed "s|^|$table: no test and no reason: |" || true
)
[ -z "$problems" ] || { echo "$problems"; exit 1; }
