#!/bin/sh
# check_security.sh finds what it is to find, and nothing else.
set -eu
check=$(dirname "$0")/check_security.sh
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/src" "$root/tests/layering" "$root/tests/fuzz/corpus/handshake"
echo 'TEST_F(Locks, KeepOut) {' > "$root/src/lock_test.cpp"
echo 'add_test(NAME layering.no_archives COMMAND sh)' > "$root/tests/layering/CMakeLists.txt"
claims() { printf '# Security\n\nSee `src/lock.h`.\n\n## What is protected\n\n%s\n\n## What is not\n\n- Anything else.\n' "$1" > "$root/SECURITY.md"; }
accepted() { claims "$1"; sh "$check" "$root" || { echo "refused: $1"; exit 1; }; }
refused() { claims "$1"; ! sh "$check" "$root" > /dev/null || { echo "accepted: $1"; exit 1; }; }
accepted '- Doors are locked (`Locks.KeepOut`).'
accepted '- Doors are locked
  (`Locks.*`, `layering.no_archives`).'
accepted '- Messages are parsed with care (`fuzz.handshake`).'
refused '- Doors are locked.'
refused '- Doors are locked (`Locks.KeepOut`).
- Windows, too.'
refused '- Doors are locked (`Locks.KeepIn`).'
refused '- Doors are locked (`Chains.*`).'
refused '- Doors are locked (`layering.other`).'
refused '- Messages are parsed with care (`fuzz.other`).'
