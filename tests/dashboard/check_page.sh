#!/bin/sh
# check_page.sh FOLDER: builds the dashboard's page again from its sources in FOLDER and compares it with page.html.
# Exit code 77: skipped, with the reason.
set -eu
source=$1
for program in node npm; do
  command -v $program >/dev/null || { echo "skipped: $program is missing"; exit 77; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r "$source/package.json" "$source/package-lock.json" "$source/.npmrc" "$source/tsconfig.json" "$source/build.mjs" "$source/src" "$folder"
cd "$folder"
npm ci --ignore-scripts --no-audit --no-fund >npm.log 2>&1 || { tail -3 npm.log; echo "skipped: npm could not install the packages"; exit 77; }
node_modules/.bin/tsc --noEmit -p .
node build.mjs page.html
cmp page.html "$source/page.html" || { echo "dashboard/page.html is not what its sources build; run: cd dashboard && npm ci && npm run build"; exit 1; }
grep -q resolved package-lock.json && { echo "package-lock.json names a registry; see dashboard/.npmrc"; exit 1; }
echo "page.html is what its sources build"
