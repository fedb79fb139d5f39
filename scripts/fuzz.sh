#!/usr/bin/env bash
# Runs every fuzz target for FUZZ_SECONDS (10), several at a time: libFuzzer with coverage, on stable
# Rust. Name targets to run only those. Fails where one crashes, and says how to repeat it.
#   FUZZ_SECONDS=600 scripts/fuzz.sh rib
# Where that is short (under 60), what is built quickly beats what runs quickly, and that is what is built. With --build nothing is run.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
. ../scripts/path.sh
export FUZZ_SECONDS=${FUZZ_SECONDS:-10}
profile=release
[ "$FUZZ_SECONDS" -ge 60 ] || profile=short
build_only=no
if [ "${1-}" = --build ]; then
  build_only=yes
  shift
fi

if ! command -v cargo >/dev/null; then
  echo "cargo is missing: install Rust 1.95 or later (https://rustup.rs)" >&2
  exit 1
fi
# libFuzzer itself is C++, which the cc crate builds with this.
if ! command -v "${CXX:-c++}" >/dev/null; then
  echo "a C++ compiler (${CXX:-c++}) is missing, which libFuzzer needs: apt-get install g++" >&2
  exit 1
fi

cargo fmt --check

known=$(basename -s .rs fuzz_targets/*.rs)
targets=${*:-$known}
for target in $targets; do
  if [ ! -e "fuzz_targets/$target.rs" ]; then
    echo "there is no fuzz target $target; there are:" $known >&2
    exit 1
  fi
done

# What `cargo fuzz` passes but for the sanitizers, which need a nightly compiler. With --target, build
# scripts are not instrumented.
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing" CARGO_TARGET_DIR=target \
  cargo build --profile "$profile" --locked --quiet --target "$host" --bins
[ "$build_only" = no ] || exit 0
export FUZZ_BIN=target/$host/$profile

# Prints one line; on a crash also why, where the input is, and how to repeat it.
run() {
  local target=$1 log dict=()
  log=$(mktemp)
  mkdir -p "corpus/$target" "artifacts/$target"
  [ ! -e "dictionaries/$target" ] || dict=("-dict=dictionaries/$target")
  # New findings go to the first directory; the seeds are only read.
  if "$FUZZ_BIN/$target" -max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=1024 \
    -print_final_stats=1 -artifact_prefix="artifacts/$target/" "${dict[@]}" \
    "corpus/$target" "seeds/$target" >"$log" 2>&1; then
    local count
    count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    printf '%-10s %10s executions, no crash\n' "$target" "$count"
    rm -f "$log"
    return
  fi
  local input
  input=$(sed -nE 's/.*Test unit written to (.*)$/\1/p' "$log" | tail -1)
  {
    printf '%-10s CRASHED\n' "$target"
    # A panic says what is wrong in a few lines; what is no panic, at the end of the log.
    if grep -q 'panicked at' "$log"; then
      sed -n '/panicked at/,/stack backtrace:\|^note:\|^==/p' "$log" | grep -v 'backtrace\|^==' | head -n 20
    else
      tail -n 20 "$log"
    fi | cut -c1-300 | sed 's/^/    /'
    if [ -n "$input" ]; then
      echo "  input:  fuzz/$input"
      echo "  repeat: (cd fuzz && $FUZZ_BIN/$target $input)"
    fi
  } >&2
  rm -f "$log"
  return 1
}
export -f run

printf '%s\n' $targets | xargs -P "$(nproc)" -I{} bash -c 'run {}' || exit 1
