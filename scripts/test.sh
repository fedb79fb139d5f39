#!/usr/bin/env bash
# Everything that has to hold before a change lands, cheapest first. As an ordinary user, tests that
# need root skip and say so; what was skipped is listed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/path.sh
fuzz_seconds=${FUZZ_SECONDS:-5}
# As tests say it, and machines with their kernel before it.
skipped='^(Linux [0-9.]+: )?skipped:'
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# With the minutes that have gone.
step() { printf '\n== %s (%d:%02d)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }

step format
cargo fmt --all --check

step lints
cargo clippy --workspace --all-targets --locked -- -D warnings

step documentation
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked --quiet

step dependencies
scripts/licences.sh

wrong=()
step tests
scripts/tests.sh 2>&1 | tee "$log" || wrong+=(tests)
# Without this a build that fails (a full disk) ends in many words.
if ! grep -q ' passed, [0-9]* failed$' "$log"; then
  df -h . "$log"
  echo "no test ran: why, and the free space are above"
  exit 1
fi

# The machines on whose kernels tests are run wait much: what is counted and fuzzed is built beside them, and gets what they leave of the
# processors.
beside=$(mktemp)
# A group of its own, which can be ended as one.
set -m
(
  built=0
  nice -n 19 scripts/counts.sh || built=1
  FUZZ_SECONDS=$fuzz_seconds nice -n 19 scripts/fuzz.sh --build || built=1
  exit $built
) >"$beside" 2>&1 &
building=$!
set +m
trap 'kill -- -$building 2>/dev/null || true; rm -f "$log" "$beside"' EXIT

step kernels
PARTS=loads,forward,nic_hash,vlans_virtio,bridges_virtio,vrfs,bonds,vlans,bridges,tunnels,defaults scripts/kernels/run.sh 2>&1 |
  tee -a "$log" || wrong+=(kernels)

step counts
wait $building || wrong+=('counts, or the build of the fuzz targets')
tee -a "$log" <"$beside"

step fuzz
FUZZ_SECONDS=$fuzz_seconds scripts/fuzz.sh || wrong+=(fuzz)

if grep -qE "$skipped" "$log"; then
  printf '\nskipped:\n'
  grep -E "$skipped" "$log" | sort -u
fi
printf '\n%s\n' "$(grep -E ' passed, [0-9]* failed$' "$log")"
if [ ${#wrong[@]} -gt 0 ]; then
  printf 'wrong: %s; see the step\n' "${wrong[@]}"
  exit 1
fi
