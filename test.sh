#!/bin/sh
# ./test.sh          sets up, builds, and runs every functional test: about a quarter of an hour on two cores
# ./test.sh --quick  the loop while developing: builds, runs the fast tests, checks the format
# The last line sums up what CTest counted; the exit code is not 0 if anything failed.
# tools/check has the sanitizers, clang, clang-tidy and the format; tools/nightly what takes hours.
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
if [ "$mode" = --quick ]; then
  build dev && run_tests dev -LE 'slow|packaging'
  phase "format" tools/format --check
else
  tools/setup --bench || echo "some peers of lockstep bench will be missing"
  build dev && run_tests dev
fi
finish
