#!/bin/sh
# ./test.sh          installs missing packages, builds, and runs all functional tests: about 20 minutes on two cores
# ./test.sh --quick  for development: builds, runs the fast tests, and checks the format
# The last line has the numbers of passed, failed and skipped tests; the exit code is not 0 if anything failed.
# tools/check runs long tests, the sanitizers, clang, clang-tidy and the format check; tools/nightly what takes hours.
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
  build dev && run_tests dev -LE 'slow|packaging|^check$|^nightly$'
  phase "format" tools/format --check
else
  tools/setup --bench || echo "some peers of lockstep bench will be missing"
  build dev && run_tests dev -LE '^(check|nightly)$'
fi
finish
