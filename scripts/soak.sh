#!/usr/bin/env bash
# Compares the engines with each other and with this machine's kernel, on drawn states and frames, seed
# after seed for SOAK_MINUTES (10). Fails where a seed failed, and says how to repeat it. Needs root.
#   SOAK_MINUTES=480 SOAK_SEED=1 scripts/soak.sh
# SOAK_SEED is the first seed; without it, the time of day, so that every soak draws others.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/path.sh
minutes=${SOAK_MINUTES:-10} seed=${SOAK_SEED:-$(date +%s)}
for number in "$minutes" "$seed"; do
  case $number in
    '' | 0* | *[!0-9]*) echo "SOAK_MINUTES and SOAK_SEED are whole numbers from 1, not '$number'" >&2; exit 1 ;;
  esac
done
if [ "$(id -u)" -ne 0 ]; then
  echo 'make soak needs root: it loads XDP programs and makes network namespaces' >&2
  exit 1
fi

# For each seed: states of 200 frames for the engines, 4 policies with 2 x 700 frames for the kernel.
states=100
per_state=200
per_oracle=5600
engines=(cargo test --quiet --locked --package raddle-xdp --test differential)
kernel=(cargo test --quiet --locked --package raddle-e2e --test oracle)

# Built beforehand, so that only comparing takes of the time.
cargo build --quiet --locked --package raddle
"${engines[@]}" --no-run
"${kernel[@]}" --no-run

logs=target/soak
mkdir -p "$logs"
compared_engines=0 compared_kernel=0 failures=()

# once NAME VARIABLE=VALUE... -- COMMAND...: 1 if it failed.
once() {
  local name=$1 log settings=()
  shift
  while [ "$1" != -- ]; do settings+=("$1"); shift; done
  shift
  log=$logs/$name-$seed.log
  if env "${settings[@]}" "$@" >"$log" 2>&1; then
    rm -f "$log"
    return
  fi
  # Whoever interrupts it has not found a fault.
  [ "$stop" = no ] || return 1
  failures+=("$name, seed $seed: $log
  repeat: ${settings[*]} $*")
  echo "FAILED ${failures[-1]}" >&2
  grep -m1 -A12 'panicked at' "$log" | cut -c1-300 | sed 's/^/    /' >&2 || true
  return 1
}

stop=no
trap 'stop=yes' INT TERM
begin=$SECONDS first=$seed
while [ "$stop" = no ] && [ $((SECONDS - begin)) -lt $((minutes * 60)) ]; do
  if once engines PROPTEST_RNG_SEED="$seed" RADDLE_CASES=$states -- "${engines[@]}"; then
    compared_engines=$((compared_engines + states * per_state))
  fi
  [ "$stop" = no ] || break
  if once kernel RADDLE_SEED="$seed" -- "${kernel[@]}"; then
    compared_kernel=$((compared_kernel + per_oracle))
  fi
  [ ! -t 1 ] || printf '\r%s frames by both engines, %s by the kernel and raddle ' "$compared_engines" "$compared_kernel"
  seed=$((seed + 1))
done
[ ! -t 1 ] || printf '\r\e[K'

echo "$compared_engines frames by both engines, $compared_kernel by the kernel and raddle, seeds $first to $((seed - 1))," \
  "$(((SECONDS - begin) / 60)) min: ${#failures[@]} failed"
[ ${#failures[@]} -eq 0 ] || printf '%s\n' "${failures[@]}" >&2
[ ${#failures[@]} -eq 0 ] && [ "$compared_engines" -gt 0 ]
