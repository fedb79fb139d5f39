//! Path MTUs that the kernel has learnt of the other ends of tunnels. It tells nobody of them, so it is asked.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use raddle_netlink::{Error, RouteQuery, Socket};
use raddle_rib::Rib;
use raddle_rib::event::{Event, LearntMtu};

/// How often the kernel is asked, and how much at a time: a question takes it some ten microseconds.
const EACH: Duration = Duration::from_millis(100);
const MOST: usize = 25;

/// This end of a tunnel and the other one.
type Ends = (Ipv4Addr, Ipv4Addr);
/// A path MTU, and whether it is locked.
type Learnt = (u32, bool);

/// Whom to ask about next.
#[derive(Debug, Default)]
pub(crate) struct PathMtus {
    asked: Option<Instant>,
    /// The ends that were asked about last.
    last: Option<Ends>,
}

/// Whether the kernel's error says that it has no such way.
fn has_no_way(errno: i32) -> bool {
    let no_way = [
        libc::ENETUNREACH,
        libc::EHOSTUNREACH,
        libc::ENETDOWN,
        libc::ENODEV,
        libc::EINVAL,
        libc::EACCES,
        libc::EPERM,
    ];
    no_way.contains(&errno)
}

impl PathMtus {
    /// Has a mirror know what the kernel has learnt; to be called several times a second.
    ///
    /// 1. All ends that packets are put between are asked about in turn, [`MOST`] questions each [`EACH`]: up to 25 ends ten times a
    ///    second, 1000 ends every four seconds.
    /// 2. Where there are several ways to the other end, each of them may have learnt something. That is asked by its link; of two by one
    ///    link the kernel tells of either. What the worst one says counts for all.
    /// 3. A kernel that has no way has learnt nothing. Where it does not answer, what is known stays.
    /// 4. What is known of ends that nothing is put between any more is forgotten.
    pub(crate) fn tend(&mut self, rib: &mut Rib, socket: &mut Socket) {
        if self.asked.is_some_and(|asked| asked.elapsed() < EACH) {
            return;
        }
        self.asked = Some(Instant::now());
        self.turn(rib, &mut |(src, dst), oif| {
            let query = RouteQuery {
                src: Some(src.into()),
                oif,
                ..RouteQuery::default()
            };
            match socket.get_route(dst.into(), &query) {
                Ok(answer) => Ok(answer.learnt_mtu),
                Err(e) if e.errno().is_some_and(has_no_way) => Ok(None),
                Err(e) => Err(e),
            }
        });
    }

    /// Rules 1 to 4 at one time; `ask` asks about a way by a link, or by any.
    fn turn(
        &mut self,
        rib: &mut Rib,
        ask: &mut impl FnMut(Ends, Option<u32>) -> Result<Option<Learnt>, Error>,
    ) {
        let ends: Vec<Ends> = rib.outer_ends().collect();
        let known = rib.learnt_ends();
        let gone: Vec<Ends> = known.filter(|of| ends.binary_search(of).is_err()).collect();
        for (src, dst) in gone {
            rib.apply(Event::LearntMtuGone(src, dst));
        }
        let first = self
            .last
            .map_or(0, |last| ends.partition_point(|of| *of <= last));
        let mut left = MOST;
        for of in ends[first..].iter().chain(&ends[..first]) {
            let links = rib.outer_links(of.0, of.1);
            let several = links.iter().copied().map(Some).filter(|_| links.len() > 1);
            let mut questions = vec![None];
            questions.extend(several);
            // The first is asked about however many ways it has.
            if left < questions.len() && left < MOST {
                break;
            }
            left = left.saturating_sub(questions.len());
            self.last = Some(*of);
            let answers = questions.into_iter().map(|oif| ask(*of, oif));
            match answers.collect::<Result<Vec<_>, _>>() {
                Ok(answers) => rib.apply(worst(*of, &answers)),
                Err(e) => tracing::debug!("the path MTU of {} is not known: {e}", of.1),
            }
        }
    }
}

/// What counts, by rule 2.
fn worst((src, dst): Ends, answers: &[Option<Learnt>]) -> Event {
    let learnt = answers.iter().flatten();
    match learnt.clone().map(|learnt| learnt.0).min() {
        Some(mtu) => Event::LearntMtu(LearntMtu {
            src,
            dst,
            mtu,
            is_locked: learnt.clone().any(|learnt| learnt.1),
        }),
        None => Event::LearntMtuGone(src, dst),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use raddle_rib::Ports;
    use raddle_rib::event::{
        Address, Link, Neighbour, Route, RouteNexthop, RouteOp, RouteTarget, Tunnel, TunnelKind,
    };

    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    fn there(n: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 51, 100, n)
    }

    /// `count` tunnels, each with another end behind these links, and a route to each.
    fn rib(count: u8, below: &[u32]) -> Rib {
        let mut rib = Rib::detached();
        let hop = |index: u32, gateway: Option<[u8; 4]>| RouteNexthop {
            index,
            gateway: gateway.map(Into::into),
            weight: 1,
            ..RouteNexthop::default()
        };
        let gateway = |index: u32| [10, 0, index as u8, 2];
        let to = |dst: String, hops: Vec<RouteNexthop>| Route {
            table: 254,
            dst: dst.parse().unwrap(),
            target: RouteTarget::Multipath(hops),
            ..Route::default()
        };
        let mut out = below.to_vec();
        for index in below {
            rib.apply(Event::Link(Link::ethernet(
                *index,
                format!("e{index}"),
                [2; 6],
            )));
            rib.apply(Event::Neighbour(Neighbour {
                index: *index,
                dst: gateway(*index).into(),
                mac: Some([2; 6]),
                state: 0x80,
                flags: 0,
                protocol: 0,
            }));
        }
        rib.apply(Event::Address(Address::new(below[0], HERE.into(), 32)));
        let hops = below.iter().map(|index| hop(*index, Some(gateway(*index))));
        let outer = to("198.51.100.0/24".into(), hops.collect());
        rib.apply(Event::Route(outer, RouteOp::Add));
        for n in 0..count {
            let index = 100 + u32::from(n);
            let gre = TunnelKind::Gre {
                ikey: None,
                okey: None,
            };
            rib.apply(Event::Link(Link {
                mac: None,
                arp_type: 778,
                tunnel: Some(Tunnel {
                    remote: Some(there(n)),
                    ..crate::links::tunnel(gre)
                }),
                ..Link::ethernet(index, format!("t{n}"), [0; 6])
            }));
            let route = to(format!("172.16.{n}.0/24"), vec![hop(index, None)]);
            rib.apply(Event::Route(route, RouteOp::Add));
            out.push(index);
        }
        rib.set_ports(Ports {
            enabled: out.iter().copied().collect(),
            out: out.into_iter().collect(),
        });
        rib.commit();
        rib
    }

    #[test]
    fn all_ends_have_their_turn() {
        let (mut rib, mut asker) = (rib(9, &[2, 3]), PathMtus::default());
        assert_eq!(rib.outer_ends().count(), 9);
        let mut asked = BTreeMap::<Ipv4Addr, Vec<Option<u32>>>::new();
        let mut ask = |(src, dst): Ends, oif| {
            assert_eq!(src, HERE);
            asked.entry(dst).or_default().push(oif);
            Ok(None)
        };
        asker.turn(&mut rib, &mut ask);
        asker.turn(&mut rib, &mut ask);
        // Eight at a time, the last one first the second time.
        assert_eq!(asked.len(), 9);
        let questions = [None, Some(2), Some(3)];
        assert_eq!(asked[&there(8)], questions);
        assert_eq!(asked[&there(7)], questions);
        assert_eq!(asked[&there(0)], questions.repeat(2));
    }

    #[test]
    fn what_is_learnt_is_known_until_it_is_forgotten() {
        let (mut rib, mut asker) = (rib(2, &[2, 3]), PathMtus::default());
        let mtu = |rib: &Rib, n: u8| rib.learnt_mtu(HERE, there(n)).map(|l| (l.mtu, l.is_locked));
        let by = |(_, dst): Ends, oif: Option<u32>| {
            Ok(match oif {
                _ if dst != there(1) => None,
                None => None,
                Some(2) => Some((1400, false)),
                Some(_) => Some((1300, true)),
            })
        };
        asker.turn(&mut rib, &mut { by });
        assert_eq!([mtu(&rib, 0), mtu(&rib, 1)], [None, Some((1300, true))]);
        let silent = |_: Ends, _: Option<u32>| Err(Error::NoAnswer("tell a route"));
        asker.turn(&mut rib, &mut { silent });
        assert_eq!(mtu(&rib, 1), Some((1300, true)));
        let nothing = |_: Ends, _: Option<u32>| Ok(None);
        asker.turn(&mut rib, &mut { nothing });
        assert_eq!(mtu(&rib, 1), None);
        asker.turn(&mut rib, &mut { by });
        rib.apply(Event::LinkGone(101));
        rib.commit();
        asker.turn(&mut rib, &mut { by });
        assert_eq!(mtu(&rib, 1), None, "the tunnel is gone");
    }
}
