#!/usr/bin/env bash
# Runs `make demo` and `make test`, or the commands named, on a bare Debian 12: debootstrap's minimal
# system with git and make, the project cloned at HEAD, in a container of its own. Its network is a
# private namespace behind user-space NAT (slirp4netns), so that packages and crates can be fetched and
# the host's network is left alone. Needs root, about 12 GB below BARE_FOLDER (/var/tmp) and an hour.
#   scripts/test-bare.sh 'make demo'
# The logs and a record (what was installed, times, ends of the logs) are left in target/bare.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=bookworm

# Inside: the namespaces are there, the system below $1 is not entered yet.
inside() {
  local root=$1 ready=$2 commands=$3 name number
  hostname bare
  # A root that is a mount of its own, as programs expect (`ip netns exec` makes it a slave).
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs sysfs "$root/sys"
  # As systemd mounts them when a machine starts.
  mount -t bpf bpf "$root/sys/fs/bpf"
  mount -t tmpfs -o mode=755 tmpfs "$root/run"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  mkdir -p "$root/dev/pts" "$root/dev/shm" "$root/dev/net"
  while read -r name number; do
    # shellcheck disable=SC2086 # major and minor number
    mknod -m 666 "$root/dev/$name" c $number
  done <<<$'null 1 3\nzero 1 5\nfull 1 7\nrandom 1 8\nurandom 1 9\ntty 5 0\nnet/tun 10 200'
  mount -t devpts -o newinstance,ptmxmode=666,gid=5,mode=620 devpts "$root/dev/pts"
  mount -t tmpfs tmpfs "$root/dev/shm"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s fd/0 "$root/dev/stdin"
  ln -s fd/1 "$root/dev/stdout"
  ln -s fd/2 "$root/dev/stderr"
  ip link set lo up
  touch "$ready.wanted"
  until [ -s "$ready" ]; do sleep 0.1; done
  # Of what the caller's environment has, only how to get out of here.
  local reach=()
  for name in http_proxy https_proxy no_proxy; do
    [ -z "${!name-}" ] || reach+=("$name=${!name}")
  done
  cd "$root"
  pivot_root . .
  umount --lazy .
  # The shell stays as process 1, which has to collect orphans.
  exec chroot . /usr/bin/env -i HOME=/root TERM=dumb "${reach[@]}" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /bin/bash -c 'cd /root/raddle && { eval "$1"; result=$?; exit "$result"; }' bash "$commands"
}

# Debian's archives as this host reaches them; without any, Debian's own.
archives() {
  local found
  found=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' 'Origin: Debian' 2>/dev/null | grep -E " $suite(-updates|-security)? main$" | sort -u || true)
  [ -n "$found" ] || found="http://deb.debian.org/debian $suite main
http://deb.debian.org/debian $suite-updates main
http://deb.debian.org/debian-security $suite-security main"
  printf '%s\n' "$found"
}

# A system that has nothing but what Debian calls required, git and make.
bootstrap() {
  local root=$1 mirror
  mirror=$(archives | awk -v suite="$suite" '$2 == suite { print $1; exit }')
  # It mounts /proc in there: not for others to see, nor to stay when this is interrupted.
  if ! unshare --mount debootstrap --variant=minbase --include=git,make "$suite" "$root" "$mirror" >"$work/debootstrap.log" 2>&1; then
    tail -n 20 "$work/debootstrap.log" >&2
    exit 1
  fi
  archives | sed 's/^/deb /' >"$root/etc/apt/sources.list"
  # What this host needs to reach them, and authorities that it trusts besides the usual ones.
  apt-config dump | grep -E '^Acquire::(https?::.*Proxy|Check-)' >"$root/etc/apt/apt.conf.d/90host" || true
  if [ -d /usr/local/share/ca-certificates ]; then
    mkdir -p "$root/usr/local/share/ca-certificates"
    cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates"
  fi
  # As the installer leaves them; 10.0.2.3 is the NAT's own, which asks the host's.
  printf '127.0.0.1 localhost\n127.0.1.1 bare\n::1 localhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
  echo bare >"$root/etc/hostname"
  echo 'nameserver 10.0.2.3' >"$root/etc/resolv.conf"
  git -c advice.detachedHead=false clone --quiet --no-hardlinks --single-branch "file://$PWD" "$root/root/raddle"
}

# Runs one command line in a container on the system below $1; prints what it prints.
contained() {
  local root=$1 ready=$work/ready result=0
  rm -f "$ready" "$ready.wanted"
  unshare --mount --propagation private --pid --fork --kill-child --net --uts --ipc \
    "$PWD/scripts/test-bare.sh" --inside "$root" "$ready" "$2" &
  container=$!
  # Before that it has no network namespace of its own yet.
  until [ -e "$ready.wanted" ]; do
    kill -0 "$container" 2>/dev/null || return 1
    sleep 0.1
  done
  slirp4netns --configure --mtu=65520 --ready-fd=3 "$container" tap0 3>"$ready" >"$work/slirp4netns.log" 2>&1 &
  nat=$!
  until [ -s "$ready" ]; do
    if ! kill -0 "$nat" 2>/dev/null; then
      cat "$work/slirp4netns.log"
      stop
      return 1
    fi
    sleep 0.1
  done
  wait "$container" || result=$?
  stop
  return "$result"
}

container='' nat='' work=''
stop() {
  # With the container's first process everything in it ends.
  for process in $container $nat; do
    kill -KILL "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
  container='' nat=''
}
leave() {
  stop
  [ -z "$work" ] || rm -rf --one-file-system "$work"
}

installed() { chroot "$1" dpkg-query -W -f '${Package} ${Version}\n' | sort; }

main() {
  if [ "$(id -u)" -ne 0 ]; then
    echo "test-bare makes a system and a container: run it as root" >&2
    exit 1
  fi
  [ $# -gt 0 ] || set -- 'make demo' 'make test'
  trap leave EXIT
  trap 'exit 130' INT TERM HUP
  work=$(mktemp -d "${BARE_FOLDER:-/var/tmp}/raddle-bare.XXXXXX")
  local root=$work/root out=target/bare failed=0 result command log started record
  mkdir -p "$out"
  record=$out/record.txt
  echo "making a bare Debian 12 in $root"
  bootstrap "$root"
  installed "$root" >"$work/before"
  {
    echo "Debian $(cat "$root/etc/debian_version") (minimal, git, make), $(wc -l <"$work/before") packages"
    echo "raddle $(git rev-parse --short HEAD), Linux $(uname -r), $(nproc) CPUs"
  } | tee "$record"
  for command in "$@"; do
    log=$out/$(tr -cs 'a-zA-Z0-9\n' - <<<"$command").log
    started=$SECONDS result=0
    echo "== $command (log: $log)"
    contained "$root" "$command" >"$log" 2>&1 || result=$?
    [ "$result" -eq 0 ] || failed=1
    {
      echo
      echo "\$ $command"
      grep -E 'is needed: taking|^installing what is missing' "$log" || true
      echo '[...]'
      tail -n 25 "$log"
      echo "exit code $result, after $((SECONDS - started)) s"
    } | tee -a "$record"
  done
  {
    echo
    echo "packages that were installed by this:"
    installed "$root" | comm -13 "$work/before" - | tr ' ' '=' | xargs | fold -s -w 110
  } | tee -a "$record"
  return "$failed"
}

if [ "${1-}" = --inside ]; then
  shift
  inside "$@"
else
  scripts/need.sh bare
  main "$@"
fi
