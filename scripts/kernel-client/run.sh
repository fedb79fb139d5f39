#!/usr/bin/env bash
# Runs the Linux kernel's own NFS client against its own NFS server, direct and through `raddle rpc`, in a
# virtual machine: neither this machine's kernel nor its network is touched, and no root is needed.
#   scripts/kernel-client/run.sh [PART...]        parts: tree crash once both silent_direct silent_proxy (all of them)
# RADDLE is the binary (target/release/raddle), KERNEL a Debian kernel package (the newest that apt has),
# OUT where the machine is put together (target/kernel-client). It is emulated, which takes neither KVM nor
# much memory (1.5 GiB), and makes it slow: about 40 minutes, of which the client's own stalls are most.
set -euo pipefail
cd "$(dirname "$0")/../.."
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
if ldd "$(command -v busybox)" >/dev/null 2>&1; then
  echo 'this busybox needs libraries: install busybox-static' >&2
  exit 1
fi
if [ ! -x "$raddle" ]; then
  echo "$raddle is missing: cargo build --release --bin raddle, or say where it is with RADDLE" >&2
  exit 1
fi

# Packages are unpacked, not installed.
unpacked() { # NAME FILE-THAT-IT-HAS [PACKAGE-FILE]
  compgen -G "$out/$1/$2" >/dev/null && return
  mkdir -p "$out/$1"
  local package=${3:-}
  if [ -z "$package" ]; then
    local name=$1
    if [ "$name" = kernel ]; then
      name=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
      [ -n "$name" ] || { echo 'apt knows no linux-image-cloud-amd64: say with KERNEL which package to use' >&2; exit 1; }
    fi
    (cd "$out/$1" && apt-get download "$name" >/dev/null)
    package=$(ls "$out/$1"/*.deb)
  fi
  dpkg -x "$package" "$out/$1"
}
unpacked kernel 'boot/vmlinuz-*' "${KERNEL:-}"
if command -v rpc.nfsd >/dev/null; then
  server_tools=("$(command -v rpc.nfsd)" "$(command -v rpc.mountd)" "$(command -v exportfs)")
else
  unpacked nfs-kernel-server usr/sbin/rpc.nfsd
  server_tools=("$out"/nfs-kernel-server/usr/sbin/{rpc.nfsd,rpc.mountd,exportfs})
fi
kernel=$(ls "$out"/kernel/boot/vmlinuz-* | head -n 1)
version=${kernel##*/vmlinuz-}

# The machine's whole file system: busybox, these programs with the libraries that they name, and modules.
root=$out/root
rm -rf "$root"
mkdir -p "$root"/{bin,sbin,usr/bin,usr/sbin,etc,proc,sys,dev,run,tmp,mnt,var/lib/nfs,srv/export}
ln -s /run "$root/var/run"
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in $(busybox --list); do
  case $applet in
    busybox | flock | ip | ss | tc) ;;
    *) ln -s busybox "$root/bin/$applet" ;;
  esac
done
for program in "$raddle" "${server_tools[@]}" "$(command -v mount.nfs)" "$(command -v rpcbind)" \
  "$(command -v ip)" "$(command -v tc)" "$(command -v ss)" "$(command -v flock)"; do
  cp -L "$program" "$root/usr/sbin/"
  ldd "$program" | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$root${library%/*}"
    cp -L "$library" "$root$library"
  done
done
mv -f "$root/usr/sbin/${raddle##*/}" "$root/sbin/raddle"
for file in netconfig services protocols; do
  if [ -e "/etc/$file" ]; then cp -L "/etc/$file" "$root/etc/"; fi
done
printf 'root:x:0:0:root:/root:/bin/sh\n_rpc:x:105:65534::/run/rpcbind:/bin/false\nnobody:x:65534:65534::/:/bin/false\n' >"$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
printf 'passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n' >"$root/etc/nsswitch.conf"
modules=lib/modules/$version
from=$out/kernel/$modules
[ -d "$from" ] || from=$out/kernel/usr/$modules
mkdir -p "$root/$modules"
for part in fs/nfs fs/nfs_common fs/nfsd fs/lockd fs/fscache fs/netfs net/sunrpc net/dns_resolver net/sched \
  drivers/net/veth crypto lib; do
  for path in "$from/kernel/$part" "$from/kernel/$part".ko*; do
    [ -e "$path" ] || continue
    mkdir -p "$root/$modules/kernel/${part%/*}"
    cp -r "$path" "$root/$modules/kernel/${part%/*}/"
  done
done
cp "$from"/modules.{order,builtin} "$root/$modules/"
busybox depmod -b "$root" "$version"
cp scripts/kernel-client/guest.sh "$root/init"
cp scripts/kernel-client/parts.sh "$root/parts.sh"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc -R 0:0 --quiet | gzip -1) >"$out/initrd.gz"

# Its console goes to a file as well as here; the last line says how it ended.
timeout "${TIMEOUT:-5400}" qemu-system-x86_64 -machine pc,accel=tcg -cpu max -smp 2 -m 1500 -nographic -no-reboot \
  -nodefaults -serial stdio -kernel "$kernel" -initrd "$out/initrd.gz" \
  -append "console=ttyS0 quiet panic=1 oops=panic parts=$(IFS=,; echo "${parts[*]}")" </dev/null |
  sed -u 's/\r$//' | tee "$out/log.txt"
grep -q '^all parts are right$' "$out/log.txt"
