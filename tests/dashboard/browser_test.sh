#!/bin/sh
# browser_test.sh PAGE_FOLDER LOCKSTEP RANK [SCREENSHOT_FOLDER]: the dashboard of real jobs in a headless Chromium
# (browser_test.mjs). Exit code 77: skipped, with the reason.
set -eu
page=$1
here=$(cd "$(dirname "$0")" && pwd)
for program in chromium node npm; do
  command -v $program >/dev/null || { echo "skipped: $program is missing"; exit 77; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$page/package.json" "$page/package-lock.json" "$page/.npmrc" "$here/browser_test.mjs" "$folder"
(cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund >npm.log 2>&1) || {
  tail -3 "$folder/npm.log"
  echo "skipped: npm could not install playwright-core"
  exit 77
}
CHROMIUM=$(command -v chromium) PROFILE="$folder/profile" node "$folder/browser_test.mjs" "$2" "$3" "${4:-}"
