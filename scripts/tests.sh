#!/usr/bin/env bash
# Builds all tests and runs their programs, several at a time: most of them wait, for links, timers and daemons. Those that
# measure time come at the end, one by one. AT_ONCE says how many (as there are processors). Fails where one does; prints what they
# say, but for the names of those that pass, and at the end how many passed and which took longest.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/path.sh
at_once=${AT_ONCE:-$(nproc)}
# What they find depends on how long something takes or on what others make of the machine meanwhile, or they make it busy for others.
ALONE='(tests/tests/(bench|doctor|guard|life|no_punt|scale|starved)|crates/netlink/tests/kernel/main|crates/xdp/tests/losses)\.rs'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export work
# All at once: what dependencies have for tests alone is of one build with the programs that the end-to-end tests run, and nothing is
# built twice.
cargo build --workspace --bins --tests --examples --locked --message-format=json-render-diagnostics >"$work/built"
# So that none of them asks cargo whether it is up to date.
export RADDLE_BINARY=${RADDLE_BINARY:-$(realpath "${CARGO_TARGET_DIR:-target}")/debug/raddle}
# Of each its source, the folder of its crate, where it is run, and the program.
python3 - "$work/built" >"$work/all" <<'PY'
import json, os, sys
for line in open(sys.argv[1]):
    one = json.loads(line)
    if one["reason"] == "compiler-artifact" and one["profile"]["test"] and one["executable"]:
        source = os.path.relpath(one["target"]["src_path"])
        print(source, os.path.dirname(one["manifest_path"]), one["executable"], sep="\t")
PY
# End-to-end tests take longest and compute least, so they begin.
sort -t$'\t' -k1,1 "$work/all" | awk -F'\t' '{ print ($1 ~ /^tests\//) ? 0 : 1, $0 }' | sort -s -k1,1 | cut -d' ' -f2- >"$work/sorted"
grep -vE "^$ALONE"$'\t' "$work/sorted" >"$work/together"
grep -E "^$ALONE"$'\t' "$work/sorted" >"$work/alone"

# one SOURCE FOLDER PROGRAM. What it says is printed in one piece.
one() {
  local began=$SECONDS ended=0 log
  log=$work/log.${3##*/}
  (cd "$2" && exec "$3" --nocapture) >"$log" 2>&1 </dev/null || ended=$?
  (
    flock 9
    printf '%4d s  %s\n' $((SECONDS - began)) "$1" >>"$work/times"
    [ "$ended" -eq 0 ] || printf '%s (%s)\n' "$1" "$ended" >>"$work/failed"
    # `skipped:` is what tests say that could not be run.
    echo "-- $1, $((SECONDS - began)) s"
    grep -avE '^(running [0-9].*|test .* \.\.\. ok|test result: ok.*|)$' "$log" || true
    grep -a '^test result:' "$log" >>"$work/results" || true
    # What was held against the kernel, for tests/support.
    sed -n "s,^support:,$(basename "$1" .rs),p" "$log" >>"$work/support"
  ) 9>"$work/lock"
}
export -f one
run() { tr '\t' '\n' <"$work/$1" | xargs -d '\n' -n 3 -P "$2" bash -c 'one "$@"' one; }
run together "$at_once"
run alone 1
# Examples in the documentation; rustdoc builds and runs them.
if ! cargo test --workspace --doc --locked --no-fail-fast >"$work/doc" 2>&1; then
  cat "$work/doc"
  echo 'examples of the documentation' >>"$work/failed"
fi
{ grep -a '^test result:' "$work/doc" || true; } >>"$work/results"

sum() { sed -E "s/.* ([0-9]+) $1.*/\\1/" "$work/results" | awk '{ n += $1 } END { print n + 0 }'; }
record=${CARGO_TARGET_DIR:-target}/support.tsv
{ echo "# Linux $(uname -r | grep -oE "^[0-9.]+"), $(nproc) CPUs"; LC_ALL=C sort "$work/support"; } >"$record"
printf '\nWhat this kernel was compared with is in %s.\nThose that took longest:\n' "$record"
sort -rn "$work/times" | head -n 10
printf '%s passed, %s failed\n' "$(sum passed)" "$(sum failed)"
if [ -s "$work/failed" ]; then
  echo 'failed:'
  cat "$work/failed"
  exit 1
fi
