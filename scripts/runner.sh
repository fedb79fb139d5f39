#!/usr/bin/env bash
# Prints the path of the gungraun-runner that belongs to the gungraun in Cargo.lock; where it is not
# there yet, cargo installs it below target/ first, which takes about a minute and no root.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/path.sh
version=$(sed -n '/^name = "gungraun"$/{n;s/^version = "\(.*\)"$/\1/p}' Cargo.lock)
root=$(realpath -m "${CARGO_TARGET_DIR:-target}")/gungraun-runner-$version
if [ ! -x "$root/bin/gungraun-runner" ]; then
  echo "installing gungraun-runner $version into $root" >&2
  # Valgrind does the work, so a runner that is built quickly beats one that runs quickly.
  CARGO_PROFILE_DEV_DEBUG=false cargo install gungraun-runner --version "=$version" --locked --debug \
    --quiet --no-track --root "$root" >&2
fi
echo "$root/bin/gungraun-runner"
