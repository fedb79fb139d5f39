#!/usr/bin/env bash
# Sees to it that the tools of the named sets are there, by Debian's packages: says what is missing,
# then installs it. As an ordinary user it only says so, and fails where building needs it.
set -euo pipefail
. "$(dirname "$0")/path.sh"

declare -A package=(
  [clang]=clang [cc]=gcc [ip]=iproute2 [iperf3]=iperf3 [ethtool]=ethtool [nft]=nftables
  [iptables-legacy]=iptables [tcpdump]=tcpdump [xz]=xz-utils [ping]=iputils-ping [jq]=jq
  [zebra]=frr [tc]=iproute2 [g++]=g++ [birdc]=bird2 [valgrind]=valgrind
)
declare -A tools=(
  [build]="clang cc"
  [test]="g++ ip tc zebra iperf3 ethtool nft iptables-legacy tcpdump xz ping valgrind"
  [counts]="cc valgrind"
  [soak]="ip tc ethtool"
  [demo]="ip tc zebra iperf3 ethtool tcpdump"
  [bench]="ip tc ethtool"
)

has() {
  case $1 in
    zebra) [ -x /usr/lib/frr/zebra ] ;;
    *) command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ] ;;
  esac
}

missing=() vital=no
want() { missing+=("$1"); }
for set in "$@"; do
  for tool in ${tools[$set]}; do
    if ! has "$tool"; then want "${package[$tool]}"; [ "$set" = build ] && vital=yes; fi
  done
  if [ "$set" = build ] && [ ! -e /usr/include/bpf/bpf_helpers.h ]; then want libbpf-dev; vital=yes; fi
done
if ! command -v cargo >/dev/null; then
  echo "cargo is missing: install Rust 1.95 or later (https://rustup.rs)" >&2
  exit 1
fi
[ ${#missing[@]} -eq 0 ] && exit 0

list=$(printf '%s\n' "${missing[@]}" | sort -u | tr '\n' ' ')
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "missing packages: $list(as root: apt-get install $list)" >&2
  [ "$vital" = no ] || exit 1
  exit 0
fi
echo "installing what is missing: $list"
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends $list >/dev/null 2>&1 ||
  { apt-get update >/dev/null && apt-get install -y --no-install-recommends $list >/dev/null; }
