#!/bin/sh
# ./test.sh          everything that must hold before a change goes in
# ./test.sh --quick  the loop while developing: the dev build, its fast tests, the format
# The last line sums up what CTest counted; the exit code is not 0 if anything failed.
# What takes hours (whole sanitizer sets, repetitions under load, fuzzing) is in tools/nightly.
set -u
cd "$(dirname "$0")"
case ${1:-} in
  "" | --quick) mode=${1:-} ;;
  *)
    sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
. tools/phases.sh

phase "packages" tools/setup --test || finish
if [ -z "$mode" ]; then
  tools/setup --bench || echo "some peers of lockstep bench will be missing"
fi

if [ "$mode" = --quick ]; then
  build dev && run_tests dev -LE 'slow|packaging'
  phase "format" tools/format --check
  finish
fi

build dev && run_tests dev
phase "format" tools/format --check
# Sanitizers look at the code, not at the packaging. The long matrices of types, operations and counts run the same
# code as the shorter tests beside them: with sanitizers they are for the nightly run. The kernels know no threads.
matrices='ReductionsOfEveryTypeAndOperation|MovesOfEveryType|LargeBuffersWithDefaultOptions|AllReduceTakesEveryCount'
build tsan && run_tests tsan -LE 'slow|packaging|layering' -E "$matrices|Targets/Kernels"
build asan-ubsan && run_tests asan-ubsan -LE 'slow|packaging|layering' -E "$matrices"
build clang lockstep_engine && phase "clang-tidy" tools/tidy
finish
