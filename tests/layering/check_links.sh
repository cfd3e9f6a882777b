#!/bin/sh
# check_links.sh ROOT: every relative link in the Markdown files of the repository leads to a file. Code is no link. And
# no Mermaid diagram has a semicolon, which ends a statement there, so that the page would show an error instead.
set -eu
cd "$1"
broken=$(find . -name build -prune -o -name node_modules -prune -o -name '.*' ! -name . -prune -o -name '*.md' -print | sort | while read -r file; do
  sed -e '/^```/,/^```$/d' -e 's/`[^`]*`//g' "$file" | grep -oE '\]\([^)]+\)' | sed -E 's/^\]\(//; s/\)$//; s/#.*//' | while read -r target; do
    case $target in "" | http://* | https://* | mailto:*) continue ;; esac
    [ -e "$(dirname "$file")/$target" ] || echo "$file: no $target"
  done
  sed -n '/^```mermaid/,/^```$/p' "$file" | grep ';' | sed "s|^ *|$file: a semicolon in a diagram: |"
done)
[ -z "$broken" ] || { echo "$broken"; exit 1; }
