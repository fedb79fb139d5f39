#!/bin/busybox sh
# The virtual machine's first process: a server and a client, each in a network namespace of its own, joined
# by four links of 20 Mbit/s; then the parts that the kernel's command line names. Started by run.sh.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t tmpfs -o size=700m tmpfs /srv/export
exec </dev/null >/dev/console 2>&1
for module in veth sch_netem nfsd nfsv3 nfsv4; do modprobe $module; done
ip link set lo up

rate=20mbit
links='1 2 3 4'
# By their paths, as busybox's shell would take its own.
ip() { /usr/sbin/ip "$@"; }
tc() { /usr/sbin/tc "$@"; }
ip netns add client
ip netns add server
# Not `ip netns exec`, which would give each command mounts of its own.
client() { nsenter --net=/run/netns/client "$@"; }
server() { nsenter --net=/run/netns/server "$@"; }
for side in client server; do
  ip -n $side link set lo up
  $side sysctl -qw net.ipv4.fib_multipath_hash_policy=1
done
to_server='' to_client=''
for link in $links; do
  ip link add l$link netns client address 02:00:00:00:00:c$link type veth \
    peer name l$link netns server address 02:00:00:00:00:0$link
  ip -n client address add 10.8.$link.2/24 dev l$link
  ip -n server address add 10.8.$link.1/24 dev l$link
  for side in client server; do
    ip -n $side link set l$link up
    tc -n $side qdisc add dev l$link root netem rate $rate limit 100
  done
  # What goes silent lies behind the neighbour: the neighbour itself stays known.
  ip -n client neighbour replace 10.8.$link.1 dev l$link lladdr 02:00:00:00:00:0$link nud permanent
  ip -n server neighbour replace 10.8.$link.2 dev l$link lladdr 02:00:00:00:00:c$link nud permanent
  to_server="$to_server nexthop via 10.8.$link.1 dev l$link"
  to_client="$to_client nexthop via 10.8.$link.2 dev l$link"
done
ip -n client address add 10.9.0.2/32 dev lo
ip -n server address add 10.9.0.1/32 dev lo
ip -n client route add 10.9.0.1/32 src 10.9.0.2 $to_server
ip -n server route add 10.9.0.2/32 src 10.9.0.1 $to_client

# The kernel's server: as a distribution starts it, with privileged ports asked for (`secure` is the default).
echo '/srv/export *(rw,sync,no_root_squash,no_subtree_check,fsid=1)' >/etc/exports
mkdir -p /run/rpcbind /var/lib/nfs/v4recovery /var/lib/nfs/rpc_pipefs
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
server sh -c '
  rpcbind -w
  mount -t nfsd nfsd /proc/fs/nfsd
  exportfs -ra
  rpc.nfsd -G 10 8
  rpc.mountd -p 20048
  echo "versions of the server: $(cat /proc/fs/nfsd/versions)"'

. /parts.sh
wrong=0
for part in $(tr " " "\n" </proc/cmdline | sed -n "s/^parts=//p" | tr "," " "); do part_$part; done
if [ $wrong = 0 ]; then echo 'all parts are right'; else echo "$wrong checks failed"; fi
dmesg | grep -E 'not responding|timed out|BUG:|Oops|WARNING:|INFO: task' | tail -n 40
poweroff -f
