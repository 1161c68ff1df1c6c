#!/bin/sh
# Fetches test262 into build/test262. No npm package carries its tests; the source package of Debian's
# qtdeclarative-opensource-src does (an edition of 2018: modules and their namespaces, no import(), no top-level await).
# Usage: get-test262.sh [directory]
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-$top/build/test262}
[ -d "$out/test/language" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
# The mirror that this machine installs from.
apt-get indextargets --format 'deb-src $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    sort -u | grep -m1 -E '/debian/? [a-z]+ main$' >"$work/sources.list"
# An apt state of its own: nothing of the system changes, and no root is needed.
set -- -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
    -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=
apt-get -qq "$@" update
(cd "$work" && apt-get -qq "$@" source --download-only qtdeclarative-opensource-src)
tar -xJf "$work"/qtdeclarative-opensource-src_*.orig.tar.xz -C "$work" --wildcards '*/ecmascripttests/test262/*'
mkdir -p "$(dirname "$out")"
mv "$work"/qtdeclarative-*/tests/auto/qml/ecmascripttests/test262 "$out"
