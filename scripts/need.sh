#!/usr/bin/env bash
# Sees to it that Rust and the tools of the named sets are there, by Debian's packages: says what is
# missing, then installs it. As an ordinary user it only says so, and fails where building needs it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/path.sh
. scripts/rust.sh

declare -A package=(
  [clang]=clang [cc]=gcc [ip]=iproute2 [iperf3]=iperf3 [ethtool]=ethtool [nft]=nftables
  [iptables-legacy]=iptables [tcpdump]=tcpdump [xz]=xz-utils [ping]=iputils-ping [jq]=jq
  [zebra]=frr [tc]=iproute2 [g++]=g++ [birdc]=bird2 [valgrind]=valgrind [python3]=python3
  [sysctl]=procps [debootstrap]=debootstrap [slirp4netns]=slirp4netns
  [qemu-system-x86_64]=qemu-system-x86 [cpio]=cpio [busybox]=busybox-static [libc-headers]=libc6-dev [libbpf-headers]=libbpf-dev [certificates]=ca-certificates
)
declare -A tools=(
  [build]="clang cc libc-headers libbpf-headers certificates cargo"
  [test]="g++ ip tc sysctl zebra iperf3 ethtool nft iptables-legacy tcpdump xz ping valgrind python3 cargo-fmt cargo-clippy"
  [counts]="cc valgrind python3"
  [fuzz]="g++ cargo-fmt"
  [soak]="ip tc ethtool"
  [demo]="ip tc zebra iperf3 ethtool tcpdump"
  [bench]="ip tc ethtool"
  [bare]="ip debootstrap slirp4netns"
  [kernels]="qemu-system-x86_64 cpio busybox xz ip nft ping"
)

has() {
  case $1 in
    zebra) [ -x /usr/lib/frr/zebra ] ;;
    libc-headers) [ -e /usr/include/stdio.h ] ;;
    libbpf-headers) [ -e /usr/include/bpf/bpf_helpers.h ] ;;
    # Without them cargo cannot fetch anything; other distributions than Debian keep them elsewhere.
    certificates)
      [ -n "${SSL_CERT_FILE-}${SSL_CERT_DIR-}${CARGO_HTTP_CAINFO-}" ] || ! command -v apt-get >/dev/null ||
        [ -e /etc/ssl/certs/ca-certificates.crt ] ;;
    *) command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ] ;;
  esac
}

can_install() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; }
missing=() vital=no
for set in "$@"; do
  for tool in ${tools[$set]}; do
    case $tool in
      cargo) if ! rust_is_there; then rust_packages cargo rustc; vital=yes; fi ;;
      cargo-*) if ! has "$tool"; then rust_packages "$tool"; fi ;;
      *) if ! has "$tool"; then missing+=("${package[$tool]}"); [ "$set" != build ] || vital=yes; fi ;;
    esac
  done
done
[ ${#missing[@]} -eq 0 ] && exit 0

list=$(printf '%s\n' "${missing[@]}" | sort -u | tr '\n' ' ')
if ! can_install; then
  echo "missing packages: $list(as root: apt-get install $list)" >&2
  [ "$vital" = no ] || exit 1
  exit 0
fi
echo "installing what is missing: $list"
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends $list >/dev/null 2>&1 ||
  { apt-get update >/dev/null && apt-get install -y --no-install-recommends $list >/dev/null; }
