#!/bin/sh
# Proves that check_words.sh catches each kind of violation, and only those.
set -eu
checker=$(dirname "$0")/check_words.sh
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
failures=0

fresh_tree() {
  rm -rf "$root/include" "$root/docs" "$root/README.md" "$root/ARCHITECTURE.md"
  mkdir -p "$root/include/lockstep/store" "$root/docs/tutorials"
  printf '// A last will: peers learn of a death from it. It will be set.\nint doormat; // the indoor, halloween kind\n' \
    >"$root/include/lockstep/store/store.h"
  printf '# Title\n\nA communicator is a group. The job continues.\n' >"$root/docs/page.md"
  printf 'The terms of the glossary.\n' >"$root/ARCHITECTURE.md"
}

# expect_violation "<what>" <file> <content> <line of the violation> <words of the message>
expect_violation() {
  fresh_tree
  mkdir -p "$(dirname "$root/$2")"
  printf "$3" >"$root/$2"
  if output=$(sh "$checker" "$root"); then
    echo "not caught: $1"
    failures=1
  elif [ "$(echo "$output" | wc -l)" != 1 ] || ! echo "$output" | grep -qF "$2:$4:" || ! echo "$output" | grep -qF "$5"; then
    echo "wrong message for: $1; got: $output"
    failures=1
  fi
}

fresh_tree
if ! output=$(sh "$checker" "$root"); then
  echo "a tree without violations was rejected: $output"
  failures=1
fi

expect_violation "a word" include/lockstep/x.h '// Waits while nobody listens.\n' 1 '"nobody"; write: no rank'
expect_violation "a word in capitals" docs/x.md 'Fine.\n\nSomebody called abort().\n' 3 '"somebody"'
expect_violation "a phrase" README.md 'The training goes on.\n' 1 'write: continue'
expect_violation "a phrase over two lines of comment" include/lockstep/x.h '  // The newcomer is let\n  // in later.\n' 2 '"is let in"'
expect_violation "a phrase over two lines of text" docs/x.md 'No GPU was at\nhand.\n' 2 '"at hand"'
expect_violation "a private metaphor" docs/x.md 'It waits at a door.\n' 1 'member store'
expect_violation "a retired class" include/lockstep/x.h 'class TensorGroup;\n' 1 'process group (ProcessGroup)'
expect_violation "a second name" docs/x.md 'The heartbeat limit is 10 s.\n' 1 'the term of the glossary is: peer timeout'
expect_violation "a second name, plural" ARCHITECTURE.md 'Tensor groups exist.\n' 1 'process group'
expect_violation "a tutorial" docs/tutorials/1_x.md 'Whoever dies.\n' 1 '"whoever"'

rm -rf "$root/include" "$root/docs" "$root/README.md" "$root/ARCHITECTURE.md"
if sh "$checker" "$root" >/dev/null; then
  echo "not caught: a folder without headers and documents"
  failures=1
fi

exit $failures
