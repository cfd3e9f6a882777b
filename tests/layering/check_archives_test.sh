#!/bin/sh
# check_archives.sh finds what it is to find, and nothing else.
set -eu
check=$(dirname "$0")/check_archives.sh
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/src/ddp/snapshot" "$root/src/ddp/testing"
echo 'void f() { torch::load(model, path); }' > "$root/src/ddp/snapshot/import.cpp"
echo 'void f() { torch::load(model, path); }' > "$root/src/ddp/snapshot/x_test.cpp"
echo 'void f() { torch::load(model, path); }' > "$root/src/ddp/testing/x.cpp"
echo '// hooks follow it: torch::load()' > "$root/src/ddp/snapshot/x.h"
echo 'ModelView::ModelView(const torch::jit::Module& module) {}' > "$root/src/ddp/snapshot/z.cpp"
sh "$check" "$root" || { echo "refused what is allowed"; exit 1; }
for text in 'torch::load(model, path);' 'auto v = torch::pickle_load(bytes);' 'torch::serialize::InputArchive archive;' 'torch::jit::load(path);'; do
  echo "  $text" > "$root/src/ddp/snapshot/y.cpp"
  ! sh "$check" "$root" > /dev/null || { echo "did not find: $text"; exit 1; }
done
