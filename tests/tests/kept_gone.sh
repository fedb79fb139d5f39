# Programs that were kept in a network namespace that is gone are removed by the next daemon, those of others are not.
# unshare --mount --pid --fork --kill-child --mount-proc sh kept_gone.sh RADDLE
raddle=$1
set -e
mount --make-rprivate /
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmpfs /run
world() { # a router between two links, in a network namespace of this name
    ip netns add "$1"
    in="ip netns exec $1"
    ip -n "$1" link add name in0 type veth peer name in1
    ip -n "$1" link add name out0 type veth peer name out1
    for dev in in0 in1 out0 out1; do ip -n "$1" link set dev $dev up; done
    ip -n "$1" addr add 10.1.0.1/24 dev in0
    ip -n "$1" addr add 10.2.0.1/24 dev out0
    $in sysctl -qw net.ipv4.ip_forward=1
}
folder() { echo "/sys/fs/bpf/raddle/net-$(stat -L -c %i /run/netns/"$1")"; }
until_true() { # at most 60 s
    n=0
    until eval "$1"; do
        n=$((n + 1))
        [ $n -lt 600 ] || { echo "not within a minute: $1"; cat /run/log; exit 1; }
        sleep 0.1
    done
}
run() { # a daemon, until it answers
    ns=$1
    shift
    nsenter --net="/run/netns/$ns" "$raddle" run --link in0 --link out0 "$@" >/run/log 2>&1 &
    pid=$!
    until_true "nsenter --net=/run/netns/$ns $raddle status >/dev/null 2>&1"
}
stop() { kill $pid; wait $pid || true; }
world gone
world lasting
world sweeping
for ns in gone lasting; do
    run $ns --on-exit keep
    stop
done
left=$(folder gone)
other=$(folder lasting)
[ -d "$left/links" ] && [ -d "$other/links" ] || { echo "nothing was kept"; ls /sys/fs/bpf/raddle; cat /run/log; exit 1; }
run sweeping
stop
[ -d "$left" ] || { echo "removed while its namespace was there"; exit 1; }
ip netns del gone
n=0
while [ -d "$left" ]; do
    n=$((n + 1))
    [ $n -lt 60 ] || { echo "$left is still there"; cat /run/log; exit 1; }
    run sweeping
    stop
done
[ -d "$other" ] || { echo "removed of a namespace that is there"; exit 1; }
run sweeping
# Where the pins are not to be seen, that is not taken for none.
for command in detach status; do
    if ip netns exec lasting "$raddle" $command >/run/said 2>&1; then echo "$command: a good end"; exit 1; fi
    grep -q "programs are on in0, out0, and neither" /run/said || { cat /run/said; exit 1; }
done
nsenter --net=/run/netns/lasting "$raddle" detach >/dev/null
until_true 'nsenter --net=/run/netns/lasting "$raddle" detach | grep -q "no programs are kept"'
[ ! -d "$other" ]
stop
echo all well
