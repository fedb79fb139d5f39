#!/usr/bin/env bash
# Everything that has to hold before a change lands, cheapest first. As an ordinary user, tests that
# need root skip and say so; what was skipped is listed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/path.sh
log=$(mktemp)
trap 'rm -f "$log"' EXIT
step() { printf '\n== %s\n' "$*"; }

step format
cargo fmt --all --check

step lints
cargo clippy --workspace --all-targets --locked -- -D warnings

step documentation
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked --quiet

step dependencies
scripts/licences.sh

step tests
# The end-to-end tests run the programs, and would build them in the midst of the first of them.
cargo build --workspace --bin raddle --bin raddle-bench --locked --quiet
# Tests that print `skipped:` say so on standard error, which cargo shows only with --nocapture.
cargo test --workspace --locked --no-fail-fast -- --nocapture 2>&1 | tee "$log" |
  grep -vE '^(\s+Running|\s+Doc-tests|running [0-9]|test .* \.\.\. ok$|$)' || true
failed=$(grep -cE '^test .* FAILED$|^error: ' "$log" || true)
# Without this a build that fails (a full disk) ends the script at the first `grep` that finds nothing.
if ! grep -q '^test result:' "$log"; then
  tail -20 "$log"
  df -h . "$log"
  echo "no test ran: cargo's last words and the free space are above"
  exit 1
fi
sum() { grep -E '^test result:' "$log" | sed -E "s/.* ([0-9]+) $1.*/\\1/" | awk '{ n += $1 } END { print n + 0 }'; }
passed=$(sum passed)
broken=$(sum failed)

step kernels
kernels=right
PARTS=loads,forward,nic_hash,vlans_virtio,bridges_virtio,vrfs,bonds,vlans,bridges,defaults scripts/kernels/run.sh 2>&1 | tee -a "$log" || kernels=wrong

step counts
scripts/counts.sh 2>&1 | tee -a "$log"

step fuzz
FUZZ_SECONDS=${FUZZ_SECONDS:-5} scripts/fuzz.sh

if grep -q '^skipped:' "$log"; then
  printf '\nskipped:\n'
  grep '^skipped:' "$log" | sort -u
fi
printf '\n%s passed, %s failed\n' "$passed" "$broken"
[ "$kernels" = right ] || echo "wrong on Debian's kernels: see the step kernels"
[ "$kernels" = right ] && [ "$broken" -eq 0 ] && [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
