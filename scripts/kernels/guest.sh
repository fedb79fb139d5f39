#!/bin/busybox sh
# The virtual machine's first process: runs the parts that the kernel's command line names. Started by run.sh.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t bpf bpf /sys/fs/bpf
exec </dev/null >/dev/console 2>&1
for module in $(cat /modules); do modprobe $module; done
/usr/sbin/ip link set lo up
. /parts.sh
word() { tr ' ' '\n' </proc/cmdline | sed -n "s/^$1=//p"; }

wrong=0
links=''
say "Linux $(uname -r) ($(uname -v)), $(nproc) CPUs"
for link in /sys/class/net/eth*; do
  name=${link##*/}
  ip link set $name up
  links=${links:+$links,}$name
  queues=$(ls -d $link/queues/rx-* | wc -l)
  check "$name: $queues queues" [ $queues = 2 ]
done
for part in $(word parts | tr , ' '); do
  say "== $part"
  if type part_$part >/dev/null 2>&1; then part_$part; else bad "there is a part $part"; fi
done
# A busy host holds processors up for longer than Linux thinks possible.
if dmesg | grep -E 'BUG:|Oops|WARNING:|INFO: task' | grep -v 'soft lockup'; then bad "the kernel's log"; fi
say 'done'
if [ $wrong = 0 ]; then echo 'all parts are right'; else echo "$wrong checks failed"; fi
poweroff -f
