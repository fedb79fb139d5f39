#!/usr/bin/env bash
# Counts the instructions of the hot paths under callgrind, and fails where one takes more than
# bench/counts/limits.txt allows. Where the limits do not apply, or the tools cannot be had, it says
# `skipped:` and why. With --build nothing is counted yet.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/path.sh
export LIMITS=bench/counts/limits.txt
skip() { echo "skipped: instruction counts: $*"; exit 0; }

# A compiler or processor of another kind makes other instructions of the same code.
setting() { sed -n "s/^$1 //p" "$LIMITS"; }
about=$(rustc -vV)
host=$(sed -n 's/^host: //p' <<<"$about")
release=$(sed -n 's/^release: //p' <<<"$about")
[ "$host" = "$(setting host)" ] || skip "the limits are for $(setting host), this is $host"
case $release. in
  "$(setting rustc)".*) ;;
  *) skip "the limits are for Rust $(setting rustc), this is $release" ;;
esac
for feature in bmi2 avx2; do
  grep -qwm1 "$feature" /proc/cpuinfo || skip "batches are counted with ${feature^^}, which this processor lacks"
done
command -v valgrind >/dev/null || skip "valgrind is missing (as root: apt-get install valgrind)"
GUNGRAUN_RUNNER=$(scripts/runner.sh) || skip "gungraun-runner could not be installed, see above"

export GUNGRAUN_RUNNER GUNGRAUN_PARALLEL=auto GUNGRAUN_NOSUMMARY=yes GUNGRAUN_OUTPUT_FORMAT=json
# Counts are the same wherever the program is loaded, and many containers refuse to fix that.
export GUNGRAUN_ALLOW_ASLR=yes
# For the baseline processor, whatever flags anybody likes for the rest.
export RUSTFLAGS=
unset CARGO_ENCODED_RUSTFLAGS
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cargo bench --package raddle-counts --locked --quiet --no-run
[ "${1-}" != --build ] || exit 0
if ! cargo bench --package raddle-counts --locked --quiet >"$out/counts" 2>"$out/log"; then
  tail -n 40 "$out/log" >&2
  echo 'the counts could not be taken, see above' >&2
  exit 1
fi

python3 - "$out/counts" <<'PY'
import json, os, sys
path = os.environ["LIMITS"]
limits = {}
for line in open(path):
    words = line.split("#")[0].split()
    if len(words) == 2 and words[0] not in ("rustc", "host"):
        limits[words[0]] = int(words[1])
counts = {}
for line in open(sys.argv[1]):
    one = json.loads(line)
    total = one["profiles"][0]["data"]["total"]["metrics"]["Ir"]["values"]["new"]
    counts[f"{one['group']}.{one['function_name']}.{one['id']}"] = int(total)
proposed = lambda found: -(-found * 105 // 10000) * 100
wrong = []
for name, found in counts.items():
    limit = limits.get(name)
    if limit is None:
        wrong.append(f"{name} has no limit: add `{name} {proposed(found)}` to {path}")
        continue
    note = ""
    if found > limit:
        note = "  TOO MANY"
        wrong.append(f"{name}: {found} instructions, the limit is {limit} (+{100 * (found / limit - 1):.1f} %): make it "
                     f"cheaper, or raise the limit to {proposed(found)} in {path} and say why in the commit")
    elif proposed(found) * 1.05 < limit:
        note = f"  cheaper than it was: lower the limit to {proposed(found)}"
    print(f"{name:40} {found:8} of {limit:8}{note}")
for name in limits.keys() - counts.keys():
    wrong.append(f"{name} is not counted any more: remove its limit from {path}")
if wrong:
    sys.exit("\n" + "\n".join(wrong))
PY
