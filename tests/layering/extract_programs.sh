#!/bin/sh
# extract_programs.sh FOLDER FILE.md...: writes every C++ block of the files that is a whole program (it includes Lockstep
# and has a main) to FOLDER/<file>_<number>.cpp, so that a build can compile what the documentation shows.
set -eu
folder=$1
shift
rm -rf "$folder"
mkdir -p "$folder"
for file in "$@"; do
  awk -v prefix="$folder/$(basename "$file" .md)" '
    /^```cpp$/ { inside = 1; text = ""; next }
    /^```$/ && inside {
      inside = 0
      if (text ~ /#include <lockstep\// && text ~ /int main\(/) {
        program = prefix "_" ++count ".cpp"
        printf "%s", text > program
        close(program)
      }
      next
    }
    inside { text = text $0 "\n" }' "$file"
done
