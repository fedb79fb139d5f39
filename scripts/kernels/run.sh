#!/usr/bin/env bash
# Runs raddle on Debian's stock kernels, each in an emulated machine with two CPUs, two virtio_net NICs with two queues, and
# veths. As root; no KVM is needed, and neither this machine's kernel nor its network is touched.
#   scripts/kernels/run.sh [KERNEL...]       kernels: 6.1 6.12 (both)
# PARTS are loads (every program is loaded and attached), forward (packets of both families go over one and two paths, as
# the kernel would choose, and not around a firewall), nic_hash (where the hash of a NIC has the kernel send packets),
# segments (SIDs and segment lists), vlans_virtio (VLANs upon the NICs), bridges_virtio (a NIC in a bridge), and by the end-to-end tests
# vrfs, bonds, vlans, bridges, bridges_more (with macvlans), rules, rp_filter, firewall, defaults (a machine as distributions leave it), choices (by the
# kernel's own key) and changing (while frames flow), and lab (fabrics of VLANs and bonds, and of tenants by EVPN, where this machine has FRR); all,
# without it. Two more: bench measures forwarding in a VRF (emulated, only the ratio to the column beside it says something), and tunnels is the
# end-to-end test of these.
# Kernels are kept in OUT (target/kernels): a second run downloads nothing.
# TIMEOUT is a machine's, in seconds. RADDLE_FRAMES and RADDLE_SEED are handed on to the end-to-end tests. What these show is held against
# tests/support, of which docs/support.md is made: a run says how it is recorded.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/path.sh
. scripts/vm/lib.sh
out=${OUT:-target/kernels}
parts=${PARTS:-loads,forward,nic_hash,vlans_virtio,bridges_virtio,vrfs,bonds,vlans,bridges,bridges_more,rules,rp_filter,firewall,defaults,choices,changing,segments,lab}
limit=${TIMEOUT:-3600}
kernels=("$@")
[ ${#kernels[@]} -gt 0 ] || kernels=(6.1 6.12)

skip() {
  echo "skipped: raddle on Debian's kernels $*"
  exit 0
}
PATH=$PATH:/usr/sbin:/sbin
for tool in qemu-system-x86_64 cpio busybox apt-get dpkg-deb xz ip nft ping; do
  command -v "$tool" >/dev/null || skip "needs $tool (as root: scripts/need.sh kernels)"
done
benched=()
if [[ ,$parts, == *,bench,* ]]; then
  benched=(--bin raddle-bench)
  command -v ethtool >/dev/null || skip 'needs ethtool for its part bench'
fi
frr=''
if [[ ,$parts, == *,lab,* ]]; then
  for home in /usr/lib/frr /usr/libexec/frr; do [ ! -x "$home/bgpd" ] || frr=$home; done
  if [ -z "$frr" ]; then
    echo "skipped: labs on Debian's kernels need FRR"
    parts=$(tr , '\n' <<<"$parts" | { grep -vx lab || true; } | paste -sd ,)
    [ -n "$parts" ] || exit 0
  fi
fi
[ "$(uname -m)" = x86_64 ] || skip 'needs an x86_64 machine, whose programs run there'
# In a network namespace of its own, a bridge with two taps is the wire between the guest's NICs.
nics='
  ip link add name wire type bridge mcast_snooping 0 && ip link set wire addrgenmode none up || exit
  for tap in tap0 tap1; do
    ip tuntap add name $tap mode tap multi_queue && ip link set $tap master wire addrgenmode none up || exit
  done'
unshare --net sh -c "$nics" 2>/dev/null || skip 'needs root, /dev/net/tun and bridges (for the NICs)'
BOOT_IN=(unshare --net sh -c "$nics
  exec \"\$@\"" nics)

# Package lists of Debian 12 with its security archive and backports, apart from this machine's.
lists() {
  local apt mirror
  apt=$(realpath -m "$out/apt")
  mkdir -p "$apt"/{lists/partial,cache/archives/partial,parts}
  mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null |
    grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 | sed 's,/* *$,,' || true)
  mirror=${mirror:-http://deb.debian.org/debian}
  {
    for suite in bookworm bookworm-backports; do echo "deb $mirror $suite main"; done
    echo "deb $mirror-security bookworm-security main"
  } >"$apt/sources.list"
  cat >"$apt/apt.conf" <<CONF
Dir::State "$apt";
Dir::State::status "/dev/null";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "$apt/parts";
Acquire::Languages "none";
APT::Architecture "amd64";
CONF
  export APT_CONFIG=$apt/apt.conf
  apt-get update >/dev/null
}

# fetch KERNEL: the newest package of that series, unpacked once.
fetch() {
  # One that was unpacked without some modules that are run today is unpacked anew.
  [ -n "$(find "$out/$1" -name 'macvlan.ko*' -print -quit 2>/dev/null)" ] || rm -rf "${out:?}/$1"
  compgen -G "$out/$1/boot/vmlinuz-*" >/dev/null && return
  local name=linux-image-$1-amd64
  [ "$1" != 6.1 ] || name=linux-image-amd64
  (
    lists || exit
    package=$(apt-cache depends --no-recommends "$name" 2>/dev/null |
      awk -v series="linux-image-$1." '/Depends: linux-image/ && index($2, series) == 1 { print $2; exit }')
    [ -n "$package" ] || exit
    unpack "$(realpath -m "$out/$1")" 'boot/vmlinuz-*' "$package"
  )
}

# Those that can be had, first: without any nothing is built.
mkdir -p "$out"
here=()
for kernel in "${kernels[@]}"; do
  if fetch "$kernel"; then here+=("$kernel"); else echo "skipped: Debian's Linux $kernel cannot be had, so raddle was not run on it"; fi
done
[ ${#here[@]} -gt 0 ] || exit 0

# Together and of the whole workspace, as scripts/tests.sh builds them: nothing is built twice. The second says where they are.
tests=(loads vrf bonds vlans bridges macvlans tunnels rules rp_filter firewall bpf_hook default_install own_key changing)
[ -z "$frr" ] || tests+=(labs)
cargo build --workspace --bin raddle "${benched[@]}" "${tests[@]/#/--test=}" --locked --quiet
cargo test --workspace "${tests[@]/#/--test=}" --locked --no-run 2>&1 | tee "$out/build.log" || exit

# Debug information is most of a program, and of what the guest unpacks.
root=$out/root
start_root "$root" 'ip ping nsenter tc'
for tool in ip bridge ping nsenter nft bash tc ethtool iptables-restore; do add_program "$root" "$(command -v "$tool")"; done
# What tests run by a shell shall be these programs, and busybox's shell takes its own.
ln -s bash "$root/usr/sbin/sh"
add_program "$root" "${CARGO_TARGET_DIR:-target}/debug/raddle"
strip "$root/usr/sbin/raddle"
if [ ${#benched[@]} -gt 0 ]; then
  add_program "$root" "${CARGO_TARGET_DIR:-target}/debug/raddle-bench"
  strip "$root/usr/sbin/raddle-bench"
fi
# What iptables' rules name, each a library.
xtables=$(ls -d /usr/lib/*/xtables | head -n 1)
mkdir -p "$root$xtables"
cp "$xtables"/lib{xt,ipt}_*.so "$root$xtables/"
# The program of a test. Where crates have one of the same name, the end-to-end one is meant, as what it is made of says.
executable() {
  local all
  mapfile -t all < <(sed -n "s,^ *Executable tests/$1\(/main\)*\.rs (\(.*\))\$,\2,p" "$out/build.log")
  for one in "${all[@]}"; do
    [ ${#all[@]} -eq 1 ] || grep -q "tests/tests/$1" "$one.d" || continue
    echo "$one"
    return
  done
}
for test in "${tests[@]}"; do
  add_program "$root" "$(executable "$test")" "$test"
  strip "$root/usr/sbin/$test"
done
# What a lab's routers run: it is looked for beside iproute2, too.
if [ -n "$frr" ]; then
  for daemon in zebra bgpd; do add_program "$root" "$frr/$daemon"; done
  mkdir -p "$root/usr/share" "$root"/var/{lib/frr,tmp}
  cp -r /usr/share/yang "$root/usr/share/"
  echo 'frr:x:106:106::/nonexistent:/bin/false' >>"$root/etc/passwd"
  printf 'frr:x:106:\nfrrvty:x:107:frr\n' >>"$root/etc/group"
fi
install -m 755 scripts/kernels/guest.sh "$root/init"
cp scripts/kernels/parts.sh "$root/parts.sh"

devices=()
for n in 0 1; do
  devices+=(-netdev "tap,id=n$n,ifname=tap$n,script=no,downscript=no,vhost=off,queues=2")
  devices+=(-device "virtio-net-pci,netdev=n$n,mac=52:54:00:00:00:0$n,mq=on,vectors=6,hash=on,romfile=")
done
# Each with a root of its own, at the same time: much of what they do is to wait. What both say comes line by line.
machine() {
  local kernel=$1 root=$2-$1 loaded
  SECONDS=0
  rm -rf "$root"
  cp -al "$2" "$root"
  add_modules "$root" "$out/$kernel" virtio_pci virtio_net veth crc32c_generic libcrc32c nf_tables sch_ingress cls_bpf \
    cls_u32 act_mirred vrf bridge nft_compat nft_chain_nat nft_ct nft_masq nft_reject_inet xt_addrtype xt_conntrack xt_mark xt_MASQUERADE \
    xt_nat xt_tcpudp ipt_REJECT nfnetlink_hook nf_conntrack_netlink nft_meta_bridge bonding 8021q macvlan sch_tbf
  # Those of tunnels put links into each namespace as soon as they are there, so a part loads what it wants.
  loaded=$(cat "$root/modules")
  add_modules "$root" "$out/$kernel" br_netfilter vxlan ip_gre ip6_gre ipip sit ip6_tunnel
  printf '%s\n' "$loaded" >"$root/modules"
  boot "$out/$kernel" "$root" "$out/$kernel.log" 2000 "$limit" "parts=$parts frames=${RADDLE_FRAMES:-} seed=${RADDLE_SEED:-}" "${devices[@]}"
  rm -rf "$root" "$root.gz"
  if ! grep -q '^all parts are right$' "$out/$kernel.log"; then
    echo "wrong ($parts), $SECONDS s; $out/$kernel.log has its console"
    return 1
  fi
  echo "all parts are right ($parts), $SECONDS s"
  shows "$kernel"
}
# What the run has shown, as xtask/src/support.rs reads it, may not be less than what is recorded.
shows() {
  local shown=$out/$1.tsv record=tests/support/$1.tsv
  {
    # What the machine's firmware says is in front.
    sed -nE 's/^.*\[ *[0-9.]+\] (Linux .*), [0-9]+ CPUs.*$/# \1, QEMU/p' "$out/$1.log" | head -n 1
    awk -F'\t' -v OFS='\t' '
      # Some kernels end lines so on their console.
      { sub(/\r$/, "") }
      /^\[ *[0-9.]+\] == / { split($0, words, " == "); part = words[2] }
      $1 == "support:" {
        key = part OFS $2 OFS $3
        if (!(key in frames)) order[++n] = key
        frames[key] += $4; differ[key] += $5; through[key] += $6; forwarded[key] += $7
      }
      END { for (i = 1; i <= n; i++) { key = order[i]; print key, frames[key], differ[key], through[key], forwarded[key] } }
    ' "$out/$1.log"
  } >"$shown"
  [ -e "$record" ] || { echo "nothing is recorded of this kernel: cargo xtask record $record $shown"; return; }
  if ! cargo xtask support "$record" "$shown" "$parts"; then
    # No run of all parts has been held against the records yet, so this is said and is no error.
    echo "it shows less than $record; where that is right: cargo xtask record $record $shown"
    return
  fi
  echo "it shows what $record has; to record it instead: cargo xtask record $record $shown"
}
machines=()
for kernel in "${here[@]}"; do
  machine "$kernel" "$root" > >(sed -u "s/^/Linux $kernel: /") 2>&1 &
  machines+=($!)
done
trap 'kill "${machines[@]}" 2>/dev/null || true' EXIT
wrong=0
for machine in "${machines[@]}"; do wait "$machine" || wrong=1; done
exit $wrong
