#!/bin/sh
# For tools/compat, inside a root with a CUDA LibTorch: a stand-in for cuDNN.
#   compat_cudnn.sh decline   before the packages: Debian's package would fetch cuDNN from its vendor and accept its licence
#   compat_cudnn.sh stand-in  after them: a libcudnn.so.9 that programs can be linked and started with
# Without a GPU nothing calls it. If something does, the program aborts with a message.
set -eu
case ${1:-} in
  decline)
    echo "nvidia-cudnn nvidia-cudnn/question select I Decline" | debconf-set-selections
    ;;
  stand-in)
    folder=/usr/lib/$(gcc -print-multiarch)
    [ ! -e "$folder/libcudnn.so.9" ] || exit 0
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    nm -D --undefined-only "$folder"/libtorch_*.so.* | sed -n 's/.* \(cudnn[A-Za-z0-9_]*\)@.*/\1/p' | sort -u >"$scratch/names"
    {
      cat <<'END'
#include <stdio.h>
#include <stdlib.h>
static void end(const char* name) { fprintf(stderr, "%s: this root has no cuDNN\n", name); abort(); }
END
      sed 's/.*/void &(void) { end("&"); }/' "$scratch/names"
    } >"$scratch/cudnn.c"
    echo 'libcudnn.so.9 { global: cudnn*; local: *; };' >"$scratch/versions"
    gcc -shared -fPIC -Wl,-soname,libcudnn.so.9 -Wl,--version-script="$scratch/versions" -o "$folder/libcudnn.so.9" "$scratch/cudnn.c"
    ;;
  *)
    echo "usage: $0 decline|stand-in" >&2
    exit 2
    ;;
esac
