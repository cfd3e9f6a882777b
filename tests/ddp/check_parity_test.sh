#!/bin/sh
# Proves that check_parity.sh catches a test that is not there and a row without one.
set -eu
checker=$(dirname "$0")/check_parity.sh
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/tests/ddp"
printf 'TEST_P(Suite, First) {\n}\nTEST(Suite,\n     Second) {}\n' >"$root/tests/ddp/x_test.cpp"
failures=0

# expect <what> <rows> <words of the message, empty if there must be none>
expect() {
  printf '| PyTorch | checks | here |\n|---|---|---|\n%s\n' "$2" >"$root/tests/ddp/pytorch_parity.md"
  output=$(sh "$checker" "$root") && status=0 || status=1
  if [ -z "$3" ] && [ $status != 0 ]; then
    echo "rejected: $1; $output"
    failures=1
  elif [ -n "$3" ] && { [ $status = 0 ] || ! echo "$output" | grep -qF "$3"; }; then
    echo "not caught: $1; got: $output"
    failures=1
  fi
}

expect "good rows" '| a | b | `tests/ddp/x_test.cpp: Suite.First`, `tests/ddp/x_test.cpp: Suite.Second` |
| a | b | not applicable: no GPU |
| a | b | missing: no hook |' ''
expect "a test that is not there" '| a | b | `tests/ddp/x_test.cpp: Suite.Third` |' 'no test Suite.Third in tests/ddp/x_test.cpp'
expect "the beginning of a name" '| a | b | `tests/ddp/x_test.cpp: Suite.Fir` |' 'no test Suite.Fir in'
expect "a file that is not there" '| a | b | `tests/ddp/y_test.cpp: Suite.First` |' 'no file tests/ddp/y_test.cpp'
expect "a row without a test" '| a | b | TBD |' 'no test and no reason'
exit $failures
