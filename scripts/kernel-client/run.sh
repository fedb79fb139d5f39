#!/usr/bin/env bash
# Runs the Linux kernel's own NFS client against its own NFS server, direct and through `raddle rpc`, in a
# virtual machine: neither this machine's kernel nor its network is touched, and no root is needed.
#   scripts/kernel-client/run.sh [PART...]        parts: tree crash once both silent_direct silent_proxy (all of them)
# RADDLE is the binary (target/release/raddle), KERNEL a Debian kernel package (the newest that apt has),
# OUT where the machine is put together (target/kernel-client). It is emulated, which takes neither KVM nor
# much memory (1.5 GiB), and makes it slow: about 40 minutes, of which the client's own stalls are most.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/vm/lib.sh
raddle=${RADDLE:-target/release/raddle}
out=${OUT:-target/kernel-client}
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(tree crash once both silent_direct silent_proxy)
for part in "${parts[@]}"; do
  case $part in
    tree | crash | once | both | silent_direct | silent_proxy) ;;
    *) echo "'$part' is none of the parts that run.sh names at its top" >&2; exit 1 ;;
  esac
done

PATH=$PATH:/usr/sbin:/sbin
missing=()
has() { command -v "$1" >/dev/null || missing+=("$2"); }
has qemu-system-x86_64 qemu-system-x86
has cpio cpio
has busybox busybox-static
has mount.nfs nfs-common
has rpcbind rpcbind
has ip iproute2
has flock util-linux
has ldd libc-bin
if [ ${#missing[@]} -gt 0 ]; then
  echo "missing packages: ${missing[*]} (as root: apt-get install --no-install-recommends ${missing[*]})" >&2
  exit 1
fi
if [ ! -x "$raddle" ]; then
  echo "$raddle is missing: cargo build --release --bin raddle, or say where it is with RADDLE" >&2
  exit 1
fi

package=${KERNEL:-}
if [ -z "$package" ]; then
  package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
  [ -n "$package" ] || { echo 'apt knows no linux-image-cloud-amd64: say with KERNEL which package to use' >&2; exit 1; }
fi
unpack "$out/kernel" 'boot/vmlinuz-*' "$package"
if command -v rpc.nfsd >/dev/null; then
  server_tools=("$(command -v rpc.nfsd)" "$(command -v rpc.mountd)" "$(command -v exportfs)")
else
  unpack "$out/nfs-kernel-server" usr/sbin/rpc.nfsd nfs-kernel-server
  server_tools=("$out"/nfs-kernel-server/usr/sbin/{rpc.nfsd,rpc.mountd,exportfs})
fi

# The machine's whole file system: busybox, these programs with the libraries that they name, and modules.
root=$out/root
start_root "$root" 'flock ip ss tc'
mkdir -p "$root"/{var/lib/nfs,srv/export}
for program in "${server_tools[@]}" "$(command -v mount.nfs)" "$(command -v rpcbind)" "$(command -v ip)" \
  "$(command -v tc)" "$(command -v ss)" "$(command -v flock)"; do
  add_program "$root" "$program"
done
add_program "$root" "$raddle" raddle
for file in netconfig services protocols; do
  if [ -e "/etc/$file" ]; then cp -L "/etc/$file" "$root/etc/"; fi
done
# What they ask for by themselves, in the end.
add_modules "$root" "$out/kernel" veth sch_netem nfsd nfs nfsv3 nfsv4 md5 sha256_generic crc32c_generic libcrc32c
install -m 755 scripts/kernel-client/guest.sh "$root/init"
cp scripts/kernel-client/parts.sh "$root/parts.sh"

# Its console goes to a file as well as here; the last line says how it ended.
boot "$out/kernel" "$root" "$out/log.txt" 1500 "${TIMEOUT:-5400}" "parts=$(IFS=,; echo "${parts[*]}")"
grep -q '^all parts are right$' "$out/log.txt"
