#!/bin/sh
# check_archives.sh ROOT: rejects code of the libraries, below ROOT/src, that reads pickles or torch archives. Such files can
# execute code, and what peers send and snapshots contain never passes through them (SECURITY.md).
# One line for each violation, "file:line: text"; exit code 1 if there is any.
set -eu
cd "$1"

# Reads the file that a program names; and what LibTorch's own torch::load() calls. (A torch::jit::Module that the program
# has loaded is a model like others, and no violation.)
allowed='src/ddp/snapshot/import\.cpp|src/ddp/optim/(zero_redundancy_optimizer|fused_optimizers|lion)\.cpp|src/ddp/data/distributed_sampler\.cpp'

found=$(grep -rnE 'torch::load\(|torch::save\(|pickle_(load|save)|torch::jit::([^M]|M[^o])|InputArchive|OutputArchive' src \
  --include='*.cpp' --include='*.h' | grep -vE "^($allowed):|_test\.cpp:|/testing/" | grep -vE '^[^:]*:[0-9]*: *//' || true)
[ -z "$found" ] && exit 0
echo "$found"
exit 1
