# Sourced by guest.sh: what is run, each part by the client direct and through the proxy.

say() { read -r up _ </proc/uptime; echo "[$up] $*"; }
ok() { echo "ok: $*"; }
bad() { echo "WRONG: $*"; wrong=$((wrong + 1)); }
check() { what=$1; shift; if "$@"; then ok "$what"; else bad "$what"; fi; }

start_proxy() {
  set -- raddle rpc --listen 127.0.0.1:2049 --listen 127.0.0.1:111 --server 10.9.0.1:2049 --mount-port 20048 \
    -n 4 --privileged-ports
  echo "# $* &"
  # Not by the function, whose shell would be what is killed.
  nsenter --net=/run/netns/client "$@" >>/tmp/proxy.log 2>&1 &
  proxy=$!
  tries=0
  until client grep -q ' 0100007F:0801 00000000:0000 0A ' /proc/net/tcp; do
    tries=$((tries + 1))
    if [ $tries = 100 ] || ! kill -0 $proxy; then bad 'the proxy listens'; tail /tmp/proxy.log; return; fi
    sleep 0.2
  done
}
stop_proxy() { kill $proxy; wait $proxy; say "the proxy ended with $?"; }
status() { echo '# raddle rpc status'; client raddle rpc status; }

# attach HOST OPTIONS: mounted by the kernel as `mount -t nfs` does it, which runs this program.
attach() {
  say "# mount -t nfs -o $2 $1:/srv/export /mnt"
  client timeout 150 mount.nfs "$1:/srv/export" /mnt -o "$2" || { bad "mount $2"; return 1; }
  grep ' /mnt nfs' /proc/mounts
}
detach() { sync; umount /mnt || { bad 'umount'; umount -f -l /mnt; }; echo 3 >/proc/sys/vm/drop_caches; }

# source_tree DIR: about 12 MB in files of many sizes.
source_tree() {
  mkdir -p "$1/sizes" "$1/some"
  for size in 0 1 2 3 4 5 511 512 513 4095 4096 4097 8191 32767 32768 32769 65535 65536 65537 262143 524289 1048575 \
    1048576 1048577 3000001 5242880; do
    head -c $size /dev/urandom >"$1/sizes/$size"
  done
  for i in $(seq 1 60); do head -c $((i * 443)) /dev/urandom >"$1/some/$i"; done
}

# operations DIR: what is done to files, on NFS as on the local copy that it is compared with.
operations() {
  (
    cd "$1" || exit 1
    cp -r /tmp/source tree && cp -r /tmp/source gone && rm -r gone || exit 2
    mkdir many && for i in $(seq 1 500); do echo $i >many/entry-$i || exit 3; done
    [ "$(ls many | wc -l)" = 500 ] || exit 4
    mkdir moved a b && for i in $(seq 1 30); do mv many/entry-$i moved/renamed-$i || exit 5; done
    mv moved/renamed-1 moved/renamed-2 && mv moved inner && mv inner a/ && mv a b/ || exit 6
    for i in $(seq 1 10); do ln -s ../tree/some/$i b/link-$i || exit 7; done
    [ "$(md5sum <b/link-3)" = "$(md5sum <tree/some/3)" ] || exit 8
    for i in $(seq 1 10); do ln tree/some/$i b/hard-$i || exit 9; done
    rm tree/some/1 tree/some/2 && [ "$(stat -c %h b/hard-1)" = 1 ] && [ "$(stat -c %h b/hard-3)" = 2 ] || exit 10
    set -C
    for i in $(seq 1 20); do
      echo first >b/exclusive-$i || exit 11
      (echo second >b/exclusive-$i) 2>/dev/null && exit 12
    done
    set +C
    truncate -s 1000 tree/sizes/65536 && truncate -s 100000 tree/sizes/4097 && truncate -s 0 tree/sizes/513 || exit 13
    for i in $(seq 1 20); do echo line $i >>b/appended || exit 14; done
    dd if=/tmp/source/sizes/65537 of=tree/sizes/3000001 bs=1000 seek=1234 conv=notrunc 2>/dev/null || exit 15
    chmod 600 tree/sizes/1 && touch -d '2020-01-02 03:04:05' tree/sizes/2 || exit 16
    flock -n b/appended -c 'flock -n b/appended -c true && exit 1; exit 0' || exit 17
    flock -n b/appended -c true || exit 18
    rmdir a 2>/dev/null && exit 19
    mkdir many 2>/dev/null && exit 20
    exit 0
  )
}
# fingerprint DIR: all names, kinds, modes, link counts, sizes and contents.
fingerprint() {
  (
    cd "$1" || exit 1
    find . -type f -exec md5sum {} + | sort -k 2
    find . -type f -exec stat -c '%A %h %s %n' {} + | sort -k 4
    find . -type d -exec stat -c '%A %h %n' {} + | sort -k 3
    find . -type l -exec stat -c '%N' {} + | sort
    stat -c %Y tree/sizes/2
  )
}
reference() {
  [ -e /tmp/reference.txt ] && return
  source_tree /tmp/source
  mkdir /tmp/reference
  operations /tmp/reference || bad "operations on the local file system: step $?"
  fingerprint /tmp/reference >/tmp/reference.txt
  say "reference: $(find /tmp/reference | wc -l) names, $(du -sm /tmp/reference | cut -f 1) MB"
}
same() { fingerprint "$1" >/tmp/found.txt; cmp -s /tmp/reference.txt /tmp/found.txt || { diff /tmp/reference.txt /tmp/found.txt | head; false; }; }

# one_tree NAME HOST OPTIONS
one_tree() {
  attach "$2" "$3" || return
  mkdir "/mnt/$1"
  began=$(cut -d ' ' -f 1 /proc/uptime)
  operations "/mnt/$1"
  check "$1: every operation (step $?)" [ $? = 0 ]
  detach
  attach "$2" "$3" >/dev/null || return
  check "$1: read back" same "/mnt/$1"
  say "$1 began at $began"
  rm -r "/mnt/$1/many"
  check "$1: 470 names removed" [ ! -e "/srv/export/$1/many" ]
  detach
  rm -rf "/srv/export/$1"
}
part_tree() {
  reference
  for way in direct proxy; do
    host=10.9.0.1
    mount_port=20048
    if [ $way = proxy ]; then host=127.0.0.1; mount_port=2049; start_proxy; fi
    one_tree $way-v3-ports $host "vers=3,proto=tcp,port=2049,mountproto=tcp,mountport=$mount_port,nolock"
    one_tree $way-v3 $host vers=3,nolock
    for minor in 0 1 2; do one_tree $way-v4.$minor $host vers=4.$minor; done
    one_tree $way-v4.1-nconnect $host vers=4.1,nconnect=4
  done
  status
  stop_proxy
}

# A copy in which the proxy is killed three times; what has no reply is sent again by the client.
one_crash() {
  start_proxy
  attach 127.0.0.1 "$2" || return
  mkdir "/mnt/$1"
  say "$1: copying"
  for copy in 1 2 3 4; do cp -r /tmp/source "/mnt/$1/$copy" || echo "cp $copy: $?"; done &
  copying=$!
  for kill in 1 2 3; do
    sleep 1.5
    kill -9 $proxy || bad 'the proxy was there to be killed'
    say "killed, cp $(kill -0 $copying 2>/dev/null && echo goes on || echo has ended)"
    sleep 2
    start_proxy
    say 'started again'
  done
  wait $copying
  say "$1: copied"
  status
  detach
  attach 127.0.0.1 "$2" >/dev/null || return
  for copy in 1 2 3 4; do
    check "$1: copy $copy" diff -r /tmp/source "/mnt/$1/$copy"
    check "$1: copy $copy as the server has it" diff -r /tmp/source "/srv/export/$1/$copy"
  done
  detach
  stop_proxy
  rm -rf "/srv/export/$1"
}
part_crash() {
  reference
  one_crash crash-v3 vers=3,nolock
  one_crash crash-v4.1 vers=4.1
}

# Non-idempotent calls while the proxy is killed every 3 s: each error is one that was run twice, or not at all.
one_once() {
  start_proxy
  attach 127.0.0.1 "$2" || return
  mkdir "/mnt/$1"
  (exec 9>"/mnt/$1/lock"; flock -n 9 || echo "lock: $?"; sleep 1000) &
  holder=$!
  (
    cd "/mnt/$1" || exit
    for i in $(seq 1 400); do
      mkdir d$i || echo "mkdir d$i"
      echo $i >d$i/f || echo "write $i"
      mv d$i e$i || echo "mv d$i"
      ln e$i/f h$i || echo "ln $i"
      rm e$i/f || echo "rm $i"
      rmdir e$i || echo "rmdir e$i"
    done
  ) >/tmp/once.txt 2>/tmp/once.err &
  working=$!
  killed=0
  while sleep 3; kill -0 $working 2>/dev/null && [ $killed -lt 15 ]; do
    kill -9 $proxy || bad 'the proxy was there to be killed'
    killed=$((killed + 1))
    start_proxy >/dev/null
  done
  wait $working
  say "RESULT $1: 2400 operations, the proxy killed $killed times, $(wc -l </tmp/once.txt) answered wrongly"
  head -n 5 /tmp/once.err
  [ "$(ls "/srv/export/$1" | wc -l)" = 401 ] && [ "$(cat /srv/export/$1/h* | wc -l)" = 400 ]
  check "$1: the tree at its end" [ $? = 0 ]
  # A session's slot tells a repeated request from a new one; older versions have no such thing.
  if [ "$2" = vers=4.1 ]; then check "$1: no operation ran twice" [ ! -s /tmp/once.txt ]; fi
  # As the server's own file system has it.
  if [ "$2" != vers=3,nolock ]; then
    check "$1: the lock is still held" grep -q "POSIX.*:$(stat -c %i "/srv/export/$1/lock") " /proc/locks
  fi
  kill $holder
  kill $(pidof sleep) 2>/dev/null
  wait $holder
  detach
  stop_proxy
  rm -rf "/srv/export/$1"
}
part_once() {
  one_once once-v4.1 vers=4.1
  one_once once-v4.0 vers=4.0
  one_once once-v3 vers=3,nolock
}

# A mount by the server's own address beside one through the proxy: which way does each take?
one_both() {
  start_proxy
  mkdir -p /other
  attach 10.9.0.1 "$2" || return
  mount --move /mnt /other || { bad 'move'; return; }
  attach 127.0.0.1 "$2" || return
  head -c 8000000 /dev/urandom >/srv/export/both
  md5sum </mnt/both >/tmp/both
  echo "# ss -tn state established (client)"
  client /usr/sbin/ss -tn state established | grep -E ':2049|Recv'
  status
  check "$1: read" [ "$(cat /tmp/both)" = "$(md5sum </srv/export/both)" ]
  umount /other
  detach
  stop_proxy
  rm -f /srv/export/both
}
part_both() {
  one_both both-v3 vers=3,nolock
  one_both both-v4.0 vers=4.0
  one_both both-v4.1 vers=4.1
}

received() {
  client /usr/sbin/ip -s link | awk '/^[0-9]+: / { name=$2 } /RX:/ { getline; if (name ~ /^l[1-4]/) print name, $1 }'
}
silence() { # LINK SETTING
  for side in client server; do tc -n $side qdisc change dev l$1 root netem rate $rate limit 100 $2; done
}
# one_silent NAME HOST OPTIONS: one sequential reader; the link that carries most goes silent both ways
# after 4 s. Told are the longest time in which the reader got nothing, looked at every 0.1 s, and rates.
one_silent() {
  attach "$2" "$3" || return
  dd if=/mnt/big of=/dev/null bs=64k 2>/dev/null &
  reader=$!
  sleep 2
  received >/tmp/before
  sleep 2
  busiest=$(received | paste -d ' ' /tmp/before - |
    awk '{ d=$4 - $2; if (d >= most) { most=d; link=$1 } } END { print substr(link, 2, 1) }')
  at() { awk '/^pos:/ { print $2 }' /proc/$reader/fdinfo/0 2>/dev/null; }
  before=$(at)
  silence $busiest 'loss 100%'
  read -r start _ </proc/uptime
  say "$1: link l$busiest is silent"
  shown=no
  while read -r now _ </proc/uptime; pos=$(at); [ -n "$pos" ]; do
    echo "$now $pos"
    over=$(awk "BEGIN { print int($now - $start) }")
    if [ $shown = no ] && [ $over -ge 4 ]; then
      shown=yes
      # Beside the sampler, which must not wait for it.
      { [ "$2" = 127.0.0.1 ] && status || client /usr/sbin/ss -tno state all dst 10.9.0.1; } >/tmp/shown &
    fi
    [ $over -ge "$4" ] && break
    sleep 0.1
  done >/tmp/samples
  awk -v start="$start" -v name="$1" -v before="$before" '
    NR == 1 { pos=$2; since=$1; first=$2 }
    $2 != pos { if ($1 - since > longest) { longest=$1 - since; when=since - start }; pos=$2; since=$1 }
    { end=$1; last=$2 }
    END {
      stuck = end - since > 2
      if (end - since > longest) { longest=end - since; when=since - start }
      printf "RESULT %s: nothing read for %.1f s from %.1f s on%s; %.1f MB in about 4 s before, %.1f MB in the %.0f s after\n", name, longest, when,
        stuck ? " and at the end" : "", before / 1e6, (last - first) / 1e6, end - start
    }' /tmp/samples
  cat /tmp/shown
  kill -9 $reader
  silence $busiest 'loss 0%'
  wait $reader
  umount -f /mnt 2>/dev/null || umount -f -l /mnt
  echo 3 >/proc/sys/vm/drop_caches
}
big() { [ -e /srv/export/big ] || head -c 300000000 /dev/zero >/srv/export/big; }
part_silent_direct() {
  big
  for trial in 1 2 3; do one_silent "direct v3 nconnect=4, trial $trial" 10.9.0.1 vers=3,nolock,nconnect=4 120; done
  for trial in 1 2 3; do one_silent "direct v4.1 nconnect=4, trial $trial" 10.9.0.1 vers=4.1,nconnect=4 120; done
}
part_silent_proxy() {
  big
  start_proxy
  for trial in 1 2 3; do sleep 12; one_silent "proxy v3, trial $trial" 127.0.0.1 vers=3,nolock 20; done
  for trial in 1 2 3; do sleep 12; one_silent "proxy v4.1, trial $trial" 127.0.0.1 vers=4.1 20; done
  stop_proxy
  echo '# what the proxy wrote'
  cat /tmp/proxy.log
}
