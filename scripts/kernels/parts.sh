# Sourced by guest.sh: what is run on the kernel. Each part says what it checked, and `bad` what is wrong.

say() { read -r up _ </proc/uptime; echo "[$up] $*"; }
ok() { echo "ok: $*"; }
bad() { echo "WRONG: $*"; wrong=$((wrong + 1)); }
check() { what=$1; shift; if "$@" >/tmp/said 2>&1; then ok "$what"; else bad "$what"; tail -n 40 /tmp/said; false; fi; }
# until_ok SECONDS COMMAND...: emulated machines are slow, so what is waited for is what happens.
until_ok() {
  end=$(($(cut -d . -f 1 /proc/uptime) + $1))
  shift
  until "$@"; do
    [ "$(cut -d . -f 1 /proc/uptime)" -lt $end ] || return 1
    sleep 0.3
  done
}

part_loads() {
  RADDLE_LINKS=$links loads --nocapture --test-threads=1 >/tmp/out 2>&1
  ended=$?
  grep -E '^skipped:|verified over|^test result|FAILED|panicked' /tmp/out
  check "every program is loaded and attached ($ended)" [ $ended = 0 ] || tail -n 60 /tmp/out
}

# as_in_test WHAT TEST: an end-to-end test, which makes a network of its own.
as_in_test() {
  # What was not said is not set.
  for name in frames seed; do
    said=$(word $name)
    [ -z "$said" ] || export "RADDLE_$(echo $name | tr a-z A-Z)=$said"
  done
  {
    RADDLE_BINARY=/usr/sbin/raddle RADDLE_QUIET_MS=600 $2 --nocapture --test-threads=1 2>&1
    echo $? >/tmp/ended
  } | tee /tmp/out | grep -vE '^$|^running|DEBUG'
  ended=$(cat /tmp/ended)
  check "$1 as the kernel has them ($ended)" [ $ended = 0 ] || tail -n 60 /tmp/out
}
part_vrfs() { as_in_test VRFs vrf; }
part_bonds() { as_in_test bonds 'bonds --skip members_of_a_bond_beneath'; }
part_vlans() { as_in_test VLANs vlans; }
part_bridges() { as_in_test bridges 'bridges --skip rules_ --skip large_ --skip what_ --skip generic'; }
part_bridges_more() {
  as_in_test 'bridges in generic mode, large frames, their age, their rules' 'bridges generic large_ what_ rules_for'
  as_in_test macvlans macvlans
  # From here on bridges ask rules of IP, unless they are told not to.
  modprobe br_netfilter
  as_in_test 'bridges that ask rules of IP' 'bridges rules_of_ip'
}
part_tunnels() {
  # They put links into each namespace as soon as they are there.
  for module in ip_gre ipip sit vxlan; do modprobe $module; done
  # In what it runs in there it has not been shown yet; where there are VXLANs it is run outside.
  as_in_test tunnels 'tunnels --skip what_comes_in_by_tunnels_meets'
}
part_rules() { as_in_test 'routing rules' rules; }
part_rp_filter() { as_in_test rp_filter rp_filter; }
part_firewall() {
  as_in_test firewalls firewall
  as_in_test 'programs of BPF on hooks' bpf_hook
}
part_choices() { as_in_test 'choices by its own key' own_key; }
part_changing() {
  as_in_test 'changes under traffic' 'changing --skip vxlans_ --skip gre_tunnels_'
  for module in ip_gre vxlan; do modprobe $module; done
  as_in_test 'changes of tunnels under traffic' 'changing vxlans_ gre_tunnels_'
}
part_defaults() { as_in_test 'defaults of distributions' default_install; }

# Labs whose links are more than veths. Their tests look at what the labs do, and the rest at what raddle says of them.
part_lab() {
  modprobe vxlan
  labs made:: --nocapture --test-threads=1 >/tmp/out 2>&1
  ended=$?
  check "labs of VLANs, bonds and tenants ($ended)" [ $ended = 0 ] || tail -n 60 /tmp/out
  check 'no lab was skipped' not grep skipped: /tmp/out
  check 'raddle lab up clos --vlan --bond' raddle lab up clos --vlan --bond
  check 'the far host answers' raddle lab exec host1 -- ping -q -c 3 -W 20 10.2.1.2
  flow='10.2.1.2 from 10.1.1.2 iif host1 ipproto tcp sport 40000 dport 5201'
  raddle lab exec leaf1 -- raddle explain --check $flow </dev/null >/tmp/explained 2>&1
  ended=$?
  check "raddle explain has the VLAN, as the kernel ($ended)" grep -q '^=> dev spine[12]\.10 ' /tmp/explained
  check 'raddle explain has the member of the bond' grep -qE 'spine[12]-[12]' /tmp/explained
  cat /tmp/explained
  [ $ended = 0 ] || bad 'the kernel agrees'
  check 'raddle lab down clos' raddle lab down clos
  check 'raddle lab up l3vni' raddle lab up l3vni
  for host in red blue; do
    for to in 10.2.0.2 2001:db8:2::2; do check "$host: $to answers" raddle lab exec ${host}1 -- ping -q -c 3 -W 20 $to; done
  done
  check 'raddle lab down l3vni' raddle lab down l3vni
  check 'nothing is left of labs' nothing_left
}
nothing_left() { [ -z "$(ls -A /run/raddle 2>/dev/null)" ] && ! ls /run/netns | grep rdl-; }

# Not by default: what an emulated machine measures is good for ratios alone. Before 6.11 there is no hash seed to set, and the
# benchmark of forwarding, which reads no key, says so.
part_bench() {
  raddle-bench forward --only one,ecmp2,vrf,bond,vlan-in,vlan-out,vlan,bridge-in,bridge-out,vxlan-out,gre-out --rounds 5 --packets 200000 --routes 1000 >/tmp/out 2>&1
  ended=$?
  cat /tmp/out
  check "raddle-bench forward ($ended)" [ $ended = 0 ]
  check 'every column was measured' none_skipped
  # What takes longer than a bar (1) says nothing here.
  raddle-bench watch --only nft-rule,rule,vrf --rounds 3 --rate 5000 >/tmp/out 2>&1
  ended=$?
  cat /tmp/out
  check "raddle-bench watch ($ended)" [ $ended -le 1 ]
  check 'every kind was measured' none_skipped
}
none_skipped() { ! grep ^skipped /tmp/out; }

# A source, a router and a sink. Source and router are joined by the two NICs and the host's bridge, where there are
# NICs; router and sink by two veths.
#   source 10.0.1.2, fd00:1::2 -- NIC -- eth0 router a0 -- a1 sink (10.0.2.2, fd00:2::2)
#                                               b0 -- b1      (10.0.3.2, fd00:3::2)
one4=198.18.1
one6=2001:db8:1
two4=198.18.2
two6=2001:db8:2
# By its path, as busybox's shell would take its own.
ip() { /usr/sbin/ip "$@"; }
in_source() { nsenter --net=/run/netns/source "$@"; }
in_router() { nsenter --net=/run/netns/router "$@"; }
in_sink() { nsenter --net=/run/netns/sink "$@"; }
world() {
  for name in source router sink; do
    ip netns add $name
    ip -n $name link set lo up
  done
  if [ -e /sys/class/net/eth1 ]; then
    ip link set eth0 netns router
    ip link set eth1 netns source
  else
    ip link add eth0 netns router type veth peer name eth1 netns source
  fi
  for link in a b; do ip link add ${link}0 netns router type veth peer name ${link}1 netns sink; done
  in_router sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 \
    net.ipv4.fib_multipath_hash_policy=1 net.ipv6.fib_multipath_hash_policy=1
  addresses source eth1 1 2
  addresses router eth0 1 1
  addresses router a0 2 1
  addresses router b0 3 1
  addresses sink a1 2 2
  addresses sink b1 3 2
  ip -n source route add default via 10.0.1.1
  ip -n source route add default via fd00:1::1
  ip -n sink route add 10.0.1.0/24 via 10.0.2.1
  ip -n sink route add fd00:1::/64 via fd00:2::1
  for host in 1 2 3 4; do
    for net in $one4 $two4; do ip -n sink address add $net.$host/32 dev lo; done
    for net in $one6 $two6; do ip -n sink address add $net::$host/128 dev lo; done
  done
  ip -n router route add $one4.0/24 via 10.0.2.2
  ip -n router route add $one6::/64 via fd00:2::2
  ip -n router route add $two4.0/24 nexthop via 10.0.2.2 nexthop via 10.0.3.2
  ip -n router route add $two6::/64 nexthop via fd00:2::2 nexthop via fd00:3::2
  # Where each datagram arrived: the sink's rules are its own.
  in_sink nft -f - <<'RULES' || bad 'the sink has nftables'
table inet seen {
  set four { typeof iifname . ip daddr . udp sport . udp dport; flags dynamic; size 65535; }
  set six { typeof iifname . ip6 daddr . udp sport . udp dport; flags dynamic; size 65535; }
  chain input {
    type filter hook input priority 0;
    udp dport 20000-21000 update @four { iifname . ip daddr . udp sport . udp dport }
    udp dport 20000-21000 update @six { iifname . ip6 daddr . udp sport . udp dport }
  }
}
RULES
}
addresses() { # NODE LINK NETWORK HOST
  ip -n $1 link set $2 up
  ip -n $1 address add 10.0.$3.$4/24 dev $2
  ip -n $1 address add fd00:$3::$4/64 dev $2 nodad
}

# The links that are named, and more arguments.
start_raddle() {
  for link in ${named:-eth0 a0 b0}; do set -- --link $link "$@"; done
  set -- --mode native "$@"
  check "raddle run --check $*" in_router raddle run --check "$@"
  say "# raddle run $*"
  # Not by the function, whose shell would be what is killed.
  nsenter --net=/run/netns/router raddle run "$@" >/tmp/raddle.log 2>&1 &
  daemon=$!
  check 'raddle forwards' until_ok 240 is_state forwarding || cat /tmp/raddle.log
  for link in eth0 a0 b0; do check "$link: attached in the driver" in_driver $link; done
}
stop_raddle() {
  kill $daemon
  wait $daemon
  ended=$?
  check "raddle ends well ($ended)" [ $ended = 0 ]
  for link in eth0 a0 b0; do check "$link: detached" is_free $link; done
}
in_driver() { ip -n router link show $1 | grep ' xdp '; }
is_free() { ! ip -n router link show $1 | grep xdp; }
is_state() { kill -0 $daemon && in_router raddle status -j | grep -q "\"state\": *\"$1\""; }
# sent PATTERN: packets that raddle forwarded to gateways that match. left REASON: what it left to the kernel for that.
sent() { in_router raddle counters | awk -v of="$1" '/ forwarded via / && $5 ~ of { n += $1 } END { print n + 0 }'; }
left() { in_router raddle counters | awk -v of="$1" '/ to the kernel: / && $NF == of { n += $1 } END { print n + 0 }'; }
sent_more() { [ "$(sent "$1")" -ge "$2" ]; }

# send PREFIX COUNT: datagrams to so many ports of each of four hosts, which nobody listens to.
send() {
  in_source bash -c "for h in 1 2 3 4; do for ((p = 20000; p < 20000 + $2; p++)); do echo x >/dev/udp/$1\$h/\$p; done; done" 2>/dev/null
}
both() { send $1 $3; send $2 $3; }
# arrived four|six: `link address source-port port` of each, once.
arrived() { in_sink nft list set inet seen $1 | grep -oE '"[ab]1" \. [^ ]+ \. [0-9]+ \. [0-9]+' | sed 's/"//g; s/ \. / /g'; }
forget() { for set in four six; do in_sink nft flush set inet seen $set; done; }
have_arrived() { [ "$(arrived four | wc -l)" = $1 ] && [ "$(arrived six | wc -l)" = $1 ]; }
uses() { arrived $1 | cut -d ' ' -f 1 | sort | uniq -c; [ "$(arrived $1 | cut -d ' ' -f 1 | sort -u | wc -l)" = $2 ]; }

# The kernel is asked for the link of each datagram that arrived, and both must say the same.
as_the_kernel() { # SET SOURCE
  arrived $1 >/tmp/arrived
  awk -v from=$2 '{ print "route get", $2, "from", from, "iif eth0 ipproto 17 sport", $3, "dport", $4 }' /tmp/arrived >/tmp/questions
  ip -n router -batch /tmp/questions >/tmp/answers || return 1
  grep -oE ' dev [ab]0' /tmp/answers | sed 's/ dev \(.\)0/\11/' >/tmp/kernels
  cut -d ' ' -f 1 /tmp/arrived >/tmp/links
  [ -s /tmp/links ] && diff /tmp/links /tmp/kernels
}
explained() { # SET SOURCE
  arrived $1 | head -n 6 >/tmp/flows
  while read -r _ to sport dport; do
    in_router raddle explain --check $to from $2 iif eth0 ipproto udp sport $sport dport $dport </dev/null || return 1
  done </tmp/flows
}

part_forward() {
  [ -e /run/netns/router ] || world
  start_raddle
  # What goes to neighbours that are not known yet is the kernel's.
  for via in 10.0.1.2 10.0.2.2 10.0.3.2 fd00:1::2 fd00:2::2 fd00:3::2; do
    check "the router knows $via" in_router ping -q -c 1 -W 20 $via
  done
  stay_known
  for host in 1 2 3 4; do
    for net in $one4. $one6:: $two4. $two6::; do
      check "ping $net$host" in_source ping -q -c 5 -i 0.1 -W 20 $net$host
    done
  done

  # The pings' answers; those to datagrams are limited by the sink.
  for via in 10.0.1.2 fd00:1::2; do check "answers: sent by raddle ($(sent "^$via\$"))" sent_more "^$via\$" 30; done

  forget
  before4=$(sent '^10.0.2') before6=$(sent '^fd00:2')
  both $one4. $one6:: 16
  check 'one path: every datagram arrives, of both families' until_ok 60 have_arrived 64
  check 'one path: sent by raddle, IPv4' sent_more '^10.0.2' $((before4 + 64))
  check 'one path: sent by raddle, IPv6' sent_more '^fd00:2' $((before6 + 64))
  for set in four six; do check "one path: one link, $set" uses $set 1; done

  forget
  before4=$(sent '^10.0.[23]') before6=$(sent '^fd00:[23]')
  both $two4. $two6:: 32
  check 'two paths: every datagram arrives, of both families' until_ok 60 have_arrived 128
  for set in four six; do check "two paths: both are used, $set" uses $set 2; done
  # No seed is set: by the kernel's own key.
  check 'two paths: sent by raddle, IPv4' sent_more '^10.0.[23]' $((before4 + 128))
  check 'two paths: sent by raddle, IPv6' sent_more '^fd00:[23]' $((before6 + 128))
  check 'two paths: nothing is left to the kernel' [ "$(left seed-unknown)" = 0 ]
  check "two paths: the kernel's choice, IPv4" as_the_kernel four 10.0.1.2
  check "two paths: the kernel's choice, IPv6" as_the_kernel six fd00:1::2
  [ $wrong != 0 ] || shown links 384
  check 'explain --check, IPv4' explained four 10.0.1.2
  check 'explain --check, IPv6' explained six fd00:1::2

  # A rule that comes while packets are forwarded.
  in_router nft -f - <<'RULES' || bad 'the router has nftables'
table inet stop {
  chain forward { type filter hook forward priority 0; meta l4proto udp counter drop; }
}
RULES
  check 'a firewall: raddle holds' until_ok 60 is_state held
  forget
  both $one4. $one6:: 16
  check 'a firewall: it saw every packet' until_ok 60 firewall_saw 128
  check 'a firewall: nothing passed' have_arrived 0
  in_router nft delete table inet stop
  check 'no firewall: raddle forwards again' until_ok 60 is_state forwarding
  before4=$(sent '^10.0.2') before6=$(sent '^fd00:2')
  both $one4. $one6:: 16
  check 'no firewall: every datagram arrives' until_ok 60 have_arrived 64
  check 'no firewall: sent by raddle, IPv4' sent_more '^10.0.2' $((before4 + 64))
  check 'no firewall: sent by raddle, IPv6' sent_more '^fd00:2' $((before6 + 64))

  in_router raddle counters
  in_router raddle doctor >/tmp/doctor
  ended=$?
  check "doctor looks at the router ($ended)" [ $ended = 0 ]
  # Debian's release does not say which stable version it is.
  stable=$(uname -v | sed -n 's/.* Debian \([0-9.]*\)-.*/\1/p')
  check "doctor knows the stable version ($stable)" grep "checks on Linux ${stable:-[0-9]}" /tmp/doctor
  cat /tmp/doctor
  stop_raddle
  check 'the kernel forwards on' in_source ping -q -c 2 -W 20 ${two4}.1
}
# With policy 1 the kernel takes the hash that the NIC gives.
part_nic_hash() {
  [ -e /run/netns/router ] || world
  if ! in_router ethtool -K eth0 rxhash on; then
    say 'skipped: the NIC gives no hash'
    return
  fi
  in_router ethtool -x eth0
  forget
  both $two4. $two6:: 32
  check 'a hash of the NIC: every datagram arrives, of both families' until_ok 60 have_arrived 128
  for set in four six; do
    [ $set = four ] && from=10.0.1.2 || from=fd00:1::2
    check "a hash of the NIC: it decides, $set" not as_the_kernel $set $from
    check "a hash of the NIC: raddle explain says where, $set" as_explained $set $from
    cat /tmp/explained
  done
  in_router ethtool -K eth0 rxhash off
}
not() { ! "$@"; }
# as_explained SET SOURCE: each datagram came by the link that raddle explain names.
as_explained() {
  arrived $1 | head -n 20 >/tmp/flows
  while read -r link to sport dport; do
    in_router raddle explain $to from $2 iif eth0 ipproto udp sport $sport dport $dport </dev/null >/tmp/explained || return 1
    if ! grep -q "^=> dev ${link%1}0 " /tmp/explained || ! grep -q Toeplitz /tmp/explained; then
      echo "it came by $link"
      return 1
    fi
  done </tmp/flows
  [ -s /tmp/flows ]
}
# VLANs upon the NICs and upon the veths to the sink: 5, and 9 in 7 of 802.1ad.
#   source 10.0.15.2, fd00:15::2 -- eth1.5, eth0.5 -- router -- a0.5, a1.5 -- sink 10.0.16.2, fd00:16::2: 198.18.5.0/24, 2001:db8:5::/64
#   source 10.0.19.2, fd00:19::2 -- eth1.7.9, eth0.7.9 -- router -- b0.7.9, b1.7.9 -- sink 10.0.20.2, fd00:20::2: 198.18.6.0/24, 2001:db8:6::/64
part_vlans_virtio() {
  [ -e /run/netns/router ] || world
  for end in 'source eth1 15 2' 'router eth0 15 1' 'router a0 16 1' 'sink a1 16 2'; do vlan 5 $end; done
  for end in 'source eth1 19 2' 'router eth0 19 1' 'router b0 20 1' 'sink b1 20 2'; do vlan 7.9 $end; done
  for host in 1 2 3 4; do
    for net in 5 6; do
      ip -n sink address add 198.18.$net.$host/32 dev lo
      ip -n sink address add 2001:db8:$net::$host/128 dev lo
    done
  done
  for hop in '5 15 16' '6 19 20'; do
    set -- $hop
    ip -n source route add 198.18.$1.0/24 via 10.0.$2.1
    ip -n source route add 2001:db8:$1::/64 via fd00:$2::1
    ip -n router route add 198.18.$1.0/24 via 10.0.$3.2
    ip -n router route add 2001:db8:$1::/64 via fd00:$3::2
    ip -n sink route add 10.0.$2.0/24 via 10.0.$3.1
    ip -n sink route add fd00:$2::/64 via fd00:$3::1
  done
  start_raddle --link eth0.5 --link eth0.7.9 --link a0.5 --link b0.7.9
  for net in 15 16 19 20; do
    check "the router knows 10.0.$net.2" in_router ping -q -c 1 -W 20 10.0.$net.2
    check "the router knows fd00:$net::2" in_router ping -q -c 1 -W 20 fd00:$net::2
  done
  stay_known
  carried VLANs 5 16 a1.5
  carried VLANs 6 20 b1.7.9
  in_router raddle counters
  stop_raddle
  for end in 'source eth1' 'router eth0' 'router a0' 'router b0'; do
    for id in 5 7; do ip -n ${end% *} link delete ${end#* }.$id 2>/dev/null; done
  done
}
# carried WHAT NET GATEWAY LINK: what the source sends to a network of both families goes by raddle to the gateway in another, and comes by
# this link.
carried() {
  carrying=$1
  shift
  for to in 198.18.$1.1 2001:db8:$1::1; do check "$carrying: ping $to" in_source ping -q -c 5 -i 0.1 -W 20 $to; done
  forget
  before4=$(sent "^10.0.$2.2\$") before6=$(sent "^fd00:$2::2\$")
  both 198.18.$1. 2001:db8:$1:: 16
  check "$carrying: every datagram arrives by $3, of both families" until_ok 60 arrived_by $3 64
  check "$carrying: sent by raddle to $3, IPv4" sent_more "^10.0.$2.2\$" $((before4 + 64))
  check "$carrying: sent by raddle to $3, IPv6" sent_more "^fd00:$2::2\$" $((before6 + 64))
  [ $wrong != 0 ] || shown "$carrying" 128
}
# shown KIND COUNT: so many datagrams came in by a NIC and went out by a veth, each as by the kernel, and by raddle; as end-to-end tests say
# what they have compared.
shown() { printf 'support:\t%s\tvirtio_net\t%s\t0\t%s\t%s\n' "$1" $2 $2 $2; }
# Neighbours that are known; on a busy machine they would be given up for a late answer.
stay_known() {
  ip -n router neighbour show | awk '$4 == "lladdr" { print "neighbour replace", $1, "dev", $3, "lladdr", $5, "nud permanent" }' >/tmp/known
  check 'they stay known' ip -n router -batch /tmp/known
}
# vlan IDS NODE LINK NETWORK HOST: ids are 5, or 7.9 for 9 in 7 of 802.1ad.
vlan() {
  ids=$1 node=$2 link=$3
  case $ids in
    *.*)
      outer=$link.${ids%.*}
      ip -n $node link add link $link name $outer type vlan proto 802.1ad id ${ids%.*}
      # Two tags are more than a link has room for beside its MTU.
      ip -n $node link set $outer mtu 1496 up
      ip -n $node link add link $outer name $link.$ids type vlan id ${ids#*.}
      ;;
    *) ip -n $node link add link $link name $link.$ids type vlan id $ids ;;
  esac
  addresses $node $link.$ids $4 $5
}
# The NIC in a bridge br0 that filters VLANs, with 5 upon it, and the first veth to the sink in a bridge br1:
#   source 10.0.1.2, fd00:1::2 -- eth1, eth0 in br0 -- router -- a0 in br1, a1 -- sink 10.0.2.2, fd00:2::2: 198.18.1.0/24, 2001:db8:1::/64
#   source 10.0.15.2, fd00:15::2 -- eth1.5, eth0 in br0, br0.5 -- router -- b0, b1 -- sink 10.0.3.2, fd00:3::2: 198.18.5.0/24, 2001:db8:5::/64
part_bridges_virtio() {
  [ -e /run/netns/router ] || world
  for port in 'br0 eth0 1' 'br1 a0 2'; do
    set -- $port
    ip -n router address flush dev $2
    ip -n router link add $1 type bridge vlan_filtering 1
    ip -n router link set $2 master $1
    addresses router $1 $3 1
  done
  in_router bridge vlan add vid 5 dev eth0
  in_router bridge vlan add vid 5 dev br0 self
  vlan 5 source eth1 15 2
  vlan 5 router br0 15 1
  for host in 1 2 3 4; do
    ip -n sink address replace 198.18.5.$host/32 dev lo
    ip -n sink address replace 2001:db8:5::$host/128 dev lo
  done
  for family in '10.0. .0/24 . 198.18. .0/24' 'fd00: ::/64 :: 2001:db8: ::/64'; do
    set -- $family
    ip -n source route replace ${4}5$5 via ${1}15${3}1
    ip -n router route replace ${4}1$5 via ${1}2${3}2
    ip -n router route replace ${4}5$5 via ${1}3${3}2
    ip -n sink route replace ${1}15$2 via ${1}3${3}1
  done
  named='br0 br0.5 br1 b0' start_raddle
  for via in 10.0.1.2 10.0.15.2 10.0.2.2 10.0.3.2 fd00:1::2 fd00:15::2 fd00:2::2 fd00:3::2; do
    check "the router knows $via" in_router ping -q -c 1 -W 20 $via
  done
  stay_known
  carried bridges 1 2 a1
  carried 'VLANs of bridges' 5 3 b1
  in_router raddle counters
  stop_raddle
  # Parts that come now make it anew.
  for node in source router sink; do ip netns delete $node; done
  check 'the NICs come back' until_ok 60 [ -e /sys/class/net/eth0 -a -e /sys/class/net/eth1 ]
}
# arrived_by LINK COUNT: so many of each family, and none by another.
arrived_by() {
  for set in four six; do
    in_sink nft list set inet seen $set | grep -oE '"[ab]1[0-9.]*" \. [^ ]+ \. [0-9]+ \. [0-9]+' >/tmp/by
    if [ "$(wc -l </tmp/by)" != $2 ] || grep -v "^\"$1\" " /tmp/by; then return 1; fi
  done
}
# The router's SIDs, and a prefix that it encapsulates; the sink takes packets out again.
#   fd00:f::d4  End.DX4 to the sink: 198.18.3.0/24 from the source
#   fd00:f::e   End, then the sink: 2001:db8:3::/64 from the source
#   H.Encaps at the router: 2001:db8:4::/64
part_segments() {
  [ -e /run/netns/router ] || world
  for node in source router sink; do
    nsenter --net=/run/netns/$node sysctl -qw net.ipv6.conf.all.seg6_enabled=1
    for link in /proc/sys/net/ipv6/conf/*; do
      nsenter --net=/run/netns/$node sysctl -qw net.ipv6.conf.${link##*/}.seg6_enabled=1 2>/dev/null
    done
  done
  for host in 1 2 3 4; do
    ip -n sink address add 198.18.3.$host/32 dev lo
    for net in 3 4; do ip -n sink address add 2001:db8:$net::$host/128 dev lo; done
  done
  ip -n source route add 198.18.3.0/24 encap seg6 mode encap segs fd00:f::d4 dev eth1
  ip -n source route add 2001:db8:3::/64 encap seg6 mode encap segs fd00:f::e,fd00:5::6 dev eth1
  ip -n source route add 2001:db8:4::/64 via fd00:1::1
  ip -n source route add fd00:f::/64 via fd00:1::1
  ip -n router -6 route add fd00:f::d4/128 encap seg6local action End.DX4 nh4 $one4.1 count dev eth0
  ip -n router -6 route add fd00:f::e/128 encap seg6local action End count dev eth0
  ip -n router -6 route add 2001:db8:4::/64 encap seg6 mode encap segs fd00:5::6 dev a0
  ip -n router -6 route add fd00:5::/64 via fd00:2::2
  ip -n sink -6 route add fd00:5::6/128 encap seg6local action End.DT6 table 255 dev a1
  start_raddle
  check 'raddle carries segments out' until_ok 600 grep -q 'SRv6 and tunnels are carried out' /tmp/raddle.log || cat /tmp/raddle.log
  for via in 10.0.1.2 10.0.2.2 fd00:1::2 fd00:2::2; do
    check "the router knows $via" in_router ping -q -c 1 -W 20 $via
  done
  stay_known
  forget
  for net in 198.18.3. 2001:db8:3:: 2001:db8:4::; do send $net 16; done
  check 'segments: every datagram arrives' until_ok 60 arrived_of 64 128
  for sid in fd00:f::d4 fd00:f::e; do
    check "segments: $sid is carried out by raddle" until_ok 20 engine_has $sid 64
    check "segments: the kernel has none of its packets" kernel_has $sid 0
  done
  check 'segments: what is encapsulated is sent by raddle' until_ok 20 engine_has 2001:db8:4:: 64
  in_router raddle -s sr show
  stop_raddle
}
arrived_of() { [ "$(arrived four | wc -l)" = $1 ] && [ "$(arrived six | wc -l)" = $2 ]; }
counted() { in_router raddle -s -j sr show $2 | tr -d ' \n' | grep -oE "\"$1\":\{[^}]*\"packets\":[0-9]+" | grep -oE '[0-9]+$'; }
engine_has() { [ "$(counted engine $1)" -ge $2 ]; }
kernel_has() { [ "$(counted kernel $1)" = $2 ]; }

firewall_saw() {
  in_router nft list table inet stop | grep counter
  [ "$(in_router nft list table inet stop | sed -n 's/.*counter packets \([0-9]*\) .*/\1/p')" -ge $1 ]
}
