#!/bin/sh
# check_security.sh ROOT: every claim of SECURITY.md names the tests that hold it, and they exist.
#
# A claim is an item of the section "What is protected". Tests are written `Suite.Test`, `Suite.*` for all of a suite,
# `layering.x` as in a CMakeLists.txt, or `fuzz.x` for a fuzz target and its corpus. One line for each violation; exit code 1
# if there is any.
set -eu
cd "$1"
violations=$(mktemp)
trap 'rm -f "$violations"' EXIT

# "gtest Suite Test", "ctest name", "fuzz target" or "claim text" (a claim without a test), one per line.
awk '
  function finish() {
    if (claim != "" && !named) print "claim", substr(claim, 1, 70)
    claim = ""
    named = 0
  }
  /^## / { finish(); protected = /^## What is protected/ }
  /^- / { finish(); if (protected) claim = $0 }
  {
    line = $0
    while (match(line, /`[A-Za-z0-9_]+\.[A-Za-z0-9_*]+`/)) {
      name = substr(line, RSTART + 1, RLENGTH - 2)
      line = substr(line, RSTART + RLENGTH)
      if (name ~ /^[A-Z][A-Za-z0-9]*\.([A-Z][A-Za-z0-9]*|\*)$/) {
        split(name, part, ".")
        print "gtest", part[1], part[2]
        named = 1
      } else if (name ~ /^layering\.[a-z_]+$/) {
        print "ctest", name
        named = 1
      } else if (name ~ /^fuzz\.[a-z_]+$/) {
        print "fuzz", substr(name, 6)
        named = 1
      }
    }
  }
  END { finish() }
' SECURITY.md | while read -r kind first second; do
  case $kind in
    claim) echo "SECURITY.md: no test is named for: $first $second" ;;
    ctest) grep -rqs "NAME $first\b" --include=CMakeLists.txt tests src || echo "SECURITY.md: there is no test $first" ;;
    fuzz) [ -d "tests/fuzz/corpus/$first" ] || echo "SECURITY.md: there is no fuzz target $first" ;;
    gtest)
      test=$second
      [ "$test" != '*' ] || test='[A-Za-z0-9]*'
      grep -rqE "TEST(_F|_P)?\($first, $test\)" --include='*_test.cpp' src tests ||
        echo "SECURITY.md: there is no test $first.$second"
      ;;
  esac
done > "$violations"
[ -s "$violations" ] || exit 0
cat "$violations"
exit 1
