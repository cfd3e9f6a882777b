# For test.sh, tools/check and tools/nightly: runs phases one after the other, prints how long each took, and adds up
# the test counts of CTest. A phase that fails does not stop the next ones. Source it from the root.
#
#   phase <name> <command>...   a failure of the command counts as one failed test
#   build <preset> [targets]    configures and builds
#   run_tests <preset> [ctest arguments]
#   finish                      prints "N passed, N failed, N skipped" and exits

passed=0
failed=0
skipped=0
failures=
flaky=
most_flaky=5  # if more tests fail at once, none is run again
jobs=${LOCKSTEP_JOBS:-$(nproc)}
started=$(date +%s)
# For sanitizer builds. LibTorch is not instrumented: its containers cannot be checked, and the threads of OpenBLAS and
# OpenMP would make TSan very slow.
export ASAN_OPTIONS=detect_container_overflow=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export UBSAN_OPTIONS=print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
export TSAN_OPTIONS=suppressions=$PWD/tests/sanitizers/tsan.supp${TSAN_OPTIONS:+:$TSAN_OPTIONS}
# TSan's shadow memory does not work with the address randomisation of every kernel.
fixed_addresses=
if setarch -R true 2>/dev/null; then fixed_addresses="setarch -R"; fi

phase() {
  phase_name=$1
  shift
  phase_start=$(date +%s)
  echo "==> $phase_name"
  if "$@"; then result=ok; else result=FAILED; fi
  echo "<== $phase_name: $result, $(($(date +%s) - phase_start)) s"
  [ $result = ok ] && return 0
  failures="$failures
  $phase_name"
  counted_by_ctest=${counted_by_ctest:-}
  [ -n "$counted_by_ctest" ] || failed=$((failed + 1))
  counted_by_ctest=
  return 1
}

# Called before each build, because the first phase may have installed ccache: a launcher that is there from the second
# build on would compile everything again.
use_ccache() {
  if [ -n "${CMAKE_CXX_COMPILER_LAUNCHER:-}" ] || ! command -v ccache >/dev/null; then return; fi
  # Relative paths, so that several checkouts share one cache.
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
  # Without these, ccache does not cache files that include a precompiled header.
  export CCACHE_SLOPPINESS=pch_defines,time_macros
  # Without a second run of the preprocessor: a build with an empty cache takes as long as one without ccache.
  export CCACHE_DEPEND=1
}

configure_and_build() {
  use_ccache
  cmake --preset "$1" >build/configure.log 2>&1 || { cat build/configure.log; return 1; }
  preset=$1
  shift
  # On a terminal, Ninja overwrites one line; otherwise only problems are printed.
  if [ -t 1 ]; then
    ninja -C "build/$preset" -j "$jobs" "$@"
  else
    ninja -C "build/$preset" -j "$jobs" "$@" >build/build.log 2>&1 || { grep -v '^\[[0-9/]*\]' build/build.log; return 1; }
  fi
}

build() {
  mkdir -p build
  phase "build $1" configure_and_build "$@"
}

# Prints one attribute of CTest's JUnit file.
junit_count() { tr '\n\t' '  ' <"$1" | sed -n "s/.*<testsuite [^>]*[ ]$2=\"\([0-9]*\)\".*/\1/p"; }

# Tests that fail are run once more, each alone. A test that passes then is listed as flaky in the summary. It does not
# fail the run, because a machine with two cores may be too slow for a moment, but it is a bug to fix.
ctest_counted() {
  preset=$1
  shift
  junit=$PWD/build/$preset/junit.xml
  one_thread=
  [ "$preset" != tsan ] || one_thread="env OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1"
  rm -f "$junit"
  code=0
  $fixed_addresses $one_thread ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$((jobs + 1))" \
    --output-junit "$junit" "$@" || code=1
  [ -f "$junit" ] || return 1
  all=$(junit_count "$junit" tests)
  bad=$(junit_count "$junit" failures)
  not_run=$(($(junit_count "$junit" skipped) + $(junit_count "$junit" disabled)))
  if [ "$bad" -gt 0 ] && [ "$bad" -le "$most_flaky" ]; then
    again_alone && code=0
  fi
  passed=$((passed + all - bad - not_run))
  failed=$((failed + bad))
  skipped=$((skipped + not_run))
  [ "$bad" = 0 ] || counted_by_ctest=1
  return $code
}

# Runs the failed tests once more, alone. Sets $bad to the number that failed again.
again_alone() {
  failed_tests=build/$preset/Testing/Temporary/LastTestsFailed.log
  candidates=$(sed 's/^[0-9]*:/  /' "$failed_tests")
  again=$PWD/build/$preset/junit-again.xml
  rm -f "$again"
  echo "--> running $bad failed tests once more, each alone"
  $fixed_addresses $one_thread ctest --test-dir "build/$preset" --output-on-failure --rerun-failed -j 1 --output-junit "$again"
  [ -f "$again" ] || return 1
  bad=$(junit_count "$again" failures)
  if [ "$bad" != 0 ]; then
    still=$(sed 's/^[0-9]*:/  /' "$failed_tests")
    candidates=$(echo "$candidates" | grep -vxF "$still")
  fi
  [ -z "$candidates" ] || flaky="$flaky
  in $preset:
$candidates"
  [ "$bad" = 0 ]
}

run_tests() {
  test_preset=$1
  shift
  phase "test $test_preset" ctest_counted "$test_preset" "$@"
}

finish() {
  echo "total: $(($(date +%s) - started)) s"
  [ -z "$failures" ] || echo "failed phases:$failures"
  [ -z "$flaky" ] || echo "flaky, passed only when run again alone:$flaky"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ -z "$failures" ]
  exit
}
