//! What becomes of a call when its connection fails before the reply has come: of the connection to the server
//! ([`decide`]), and of the client's ([`repeated`]).
//!
//! # Which calls may be sent elsewhere
//!
//! A call that was sent and has no reply has been run, or will be run at any later moment, or never: it may lie in a
//! socket's buffer, or wait for a slow disk. This is the first copy. A second copy that goes by another connection
//! has another port and XID: the server cannot know that both are one call, and runs both. The client gets the
//! second one's reply, goes on, and the first copy may be run after anything that the client does from then on. So:
//!
//! 1. A call may be sent elsewhere only if its first copy, run at any moment, changes neither what is stored nor the
//!    reply to any other call.
//! 2. Calls that only look are such: READ, GETATTR, LOOKUP, ACCESS, READLINK, READDIR, FSSTAT and the like. The
//!    client is told what the second copy saw, at a moment between the call and its reply. READDIR's cookies are
//!    the client's to give; no server keeps a position for them.
//! 3. COMMIT is: whenever it is run, it makes durable what was written before, and nothing less durable. The
//!    verifier that the client gets is that of the second copy, which is as late as its own call.
//! 4. READ sets the time of access, and state ids and RENEW extend a lease: a server may do either a little later by
//!    itself, and neither is lost by it.
//! 5. WRITE and SETATTR are not, though they are idempotent: run late, the first copy undoes what the client has
//!    written, and was told to be written, since.
//! 6. What makes, removes, renames, opens or locks is not: the second copy has another reply, or the first undoes
//!    what came after.
//! 7. A COMPOUND is as bad as the worst of its operations.
//! 8. A call under a slot of an NFSv4.1 session may be sent by any connection, whatever it does. The slot has a
//!    sequence number, and the server runs each number once: the copy that comes second gets the first one's reply,
//!    or `NFS4ERR_DELAY` while that is being run. Once the client has gone on, with the next number, a copy with
//!    the number before is answered with the old reply or `NFS4ERR_SEQ_MISORDERED`, and not run (RFC 8881,
//!    section 2.10.6.1).
//! 9. All others go out again with the same XID from the same address and port, and no other way: the server's
//!    duplicate request cache has the first copy from the moment when it is begun, and runs the call once, whichever
//!    comes first. A server that restarts forgets it, and its own clients rely on the same.
//! 10. What was not sent completely is no call: the server never runs it, as its rest never comes.
//!
//! `replay/model.rs` has a server whose copies wait for as long as a schedule likes, and checks that what was
//! acknowledged is there at the end.

use std::time::Duration;

use crate::program::Class;

/// How much of a call has been handed to the connection that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Nothing.
    Nothing,
    /// Some, and certainly not all: the server cannot have made a call of it.
    Part,
    /// All, or it is not known: the server may have run it.
    All,
}

/// What is known about a call that was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// How much was sent.
    pub sent: Sent,
    /// What it does when it is run twice.
    pub class: Class,
    /// Whether its header is signed (RPCSEC_GSS).
    pub signed: bool,
    /// Whether a part of the reply has been passed on to the client.
    pub answered: bool,
    /// Whether its client is still there; or may yet come back and repeat it ([`RETURN`]), where [`repeated`] knows
    /// it then.
    pub wanted: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Forget it.
    Drop,
    /// Close the client's connection: it asks again by itself.
    Disconnect,
    /// Send it by another connection, under an XID of that one.
    Elsewhere,
    /// Send it again with the same XID from the same address and port, so that the server's duplicate request
    /// cache answers if it was run. Until that is possible it is held, and reported.
    SamePort,
}

/// Decides. The first rule that applies counts; the number is what reports print.
///
/// 1. Its client is gone: drop it.
/// 2. A part of the reply is with the client already: disconnect the client, whose stream cannot be
///    continued. What it repeats then meets the rules of [`repeated`]; a non-idempotent one is kept for that, as by
///    rules 4 and 6.
/// 3. Not all of it was sent: elsewhere. The server has not run it.
/// 4. It is signed: the server drops a sequence number of RPCSEC_GSS that it has seen (RFC 2203, section 5.3.3.1),
///    and only the client can sign a new one. Read-only, or under a slot: disconnect the client. Otherwise: same
///    port, as by rule 6.
/// 5. It is read-only, or under a slot of the server: elsewhere, at once.
/// 6. It is non-idempotent (it writes, does something else, or is unknown): same port, never elsewhere.
pub fn decide(cut: &Cut) -> (Action, u8) {
    let repeatable = !cut.class.is_non_idempotent();
    match cut {
        Cut { wanted: false, .. } => (Action::Drop, 1),
        Cut { answered: true, .. } => (Action::Disconnect, 2),
        Cut {
            sent: Sent::Nothing | Sent::Part,
            ..
        } => (Action::Elsewhere, 3),
        Cut { signed: true, .. } if repeatable => (Action::Disconnect, 4),
        Cut { signed: true, .. } => (Action::SamePort, 4),
        _ if repeatable => (Action::Elsewhere, 5),
        _ => (Action::SamePort, 6),
    }
}

/// How long a non-idempotent call that was sent and has no reply yet, is kept after its client's connection has ended:
/// the client may come back and repeat it, and the server may not have run it yet.
pub const RETURN: Duration = REMEMBER;

/// How long it is remembered that a non-idempotent call was answered, and what. As long as Linux's server does.
pub const REMEMBER: Duration = Duration::from_secs(120);

/// How far the earlier call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It waits for its reply.
    UnderWay,
    /// It was answered, or is being; whether the reply is kept.
    Answered(bool),
}

/// What is known about a non-idempotent call that looks like an earlier one: the same address and
/// port, XID, program, version, procedure, length, and the same first bytes ([`crate::duplicate::Key`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// How far it is.
    pub progress: Progress,
    /// Whether its header is signed (RPCSEC_GSS).
    pub signed: bool,
}

/// What to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meant {
    /// It is another call, or has to be taken for one: send it.
    Other,
    /// It waits for the earlier one's reply, and is not sent.
    Wait,
    /// It is answered with the reply that is kept, and is not sent.
    Answer,
    /// The server has to say: it goes by the connection that the earlier one went by, in its place if that is
    /// still under way.
    Server,
}

/// Decides whether a non-idempotent call is the repetition of an earlier one. The first rule that applies counts.
///
/// 1. It comes from another address or port, or differs in its XID or bytes: another. The duplicate request caches of
///    Linux's server and of nfs-ganesha take it for another, too, and a new program that numbers its calls as the
///    last one did has to have them run. [`crate::duplicate::Key`] sees to this, so that it never comes here. A
///    client that comes back from another port has its calls run again, as without a proxy; the kernel's comes back
///    from the same one.
///    The same is a call of which the earlier copy never came completely: nothing of it has reached the server.
/// 2. It is signed: the server. The client signs its repetition anew and wants a signature over the new sequence
///    number (RFC 2203, section 5.3.3.1), so that no reply that is kept would do; the server's duplicate
///    request cache knows the call behind the signature, by XID, address and port.
/// 3. It is under way: wait.
/// 4. It was answered, and the reply is kept: answer.
/// 5. It was answered with more than is kept: another. That is counted and reported.
pub fn repeated(call: &Repeated) -> (Meant, u8) {
    match call.progress {
        _ if call.signed => (Meant::Server, 2),
        Progress::UnderWay => (Meant::Wait, 3),
        Progress::Answered(true) => (Meant::Answer, 4),
        Progress::Answered(false) => (Meant::Other, 5),
    }
}

/// What is known about a call that an earlier process sent ([`crate::journal`]), or that this one has answered and
/// remembers no more of than where it was sent, and that its client repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// How long ago it was sent.
    pub age: Duration,
    /// Whether the connection with its number has the address and port that it was sent from, or may still get them.
    pub same_port: bool,
    /// Whether another call waits there under its XID.
    pub taken: bool,
}

/// What to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// It is sent as any other.
    Other,
    /// It is sent from the same port and with the same XID.
    SamePlace,
}

/// Decides where a non-idempotent call goes that was sent before. The first rule that applies counts.
///
/// 1. It was sent [`RETURN`] ago: as any other. Servers forget, too.
/// 2. The connection with its number has another port, and will not get that one: as any other. This is reported, as
///    it may be run twice. So it is when somebody else has the port, or the server's address has changed; each
///    connection looks for its port first when the process starts.
/// 3. Another call waits under its XID: as any other, reported. Only a signed call can be that, which has its
///    client's XID.
/// 4. From the same port, with the same XID: the server has the first copy in its duplicate request cache, or never
///    got it. Whichever of the two copies comes first is run, and the other one is not.
///
/// Whether the earlier process had a reply makes no difference: its client may not have got that.
pub fn resumed(left: &Left) -> (Resume, u8) {
    match left {
        Left { age, .. } if *age >= RETURN => (Resume::Other, 1),
        Left {
            same_port: false, ..
        } => (Resume::Other, 2),
        Left { taken: true, .. } => (Resume::Other, 3),
        _ => (Resume::SamePlace, 4),
    }
}

/// What is known of a way to the server while held calls look for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Whether it is the one that routing gives to the connection's address and port.
    pub own: bool,
    /// Whether another connection to the server that works goes out by it.
    pub works: bool,
    /// Whether it was tried since all were tried last.
    pub tried: bool,
}

/// Where held calls are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Try {
    /// By the way with this index.
    By(usize),
    /// Nowhere for now, and then from the start.
    Wait(Blame),
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Only the connection's own way was tried.
    OwnWay,
    /// Others are answered by ways that were tried: the server's answers are lost on their way back, and it
    /// is the server's routing that sends them there.
    WayBack,
    /// Nothing answers.
    Server,
}

/// Decides by which way the same address and port are tried next. The first rule that applies counts.
///
/// 1. The connection was reset or closed: its own way, if that was not tried. Somebody was there to say so.
/// 2. It went silent, and detours are possible: the first other way that was not tried and by which another
///    connection works.
/// 3. Detours are possible: any other way that was not tried.
/// 4. Its own way, if that was not tried. The link may be back.
/// 5. All were tried. Without detours it is its own way that is silent; if others work by one of the ways,
///    the way back is; else the server is. Wait, and begin again.
pub fn next_way(silent: bool, detours: bool, ways: &[Way]) -> (Try, u8) {
    let find = |fits: &dyn Fn(&Way) -> bool| ways.iter().position(|way| !way.tried && fits(way));
    let own = find(&|way| way.own);
    if let (false, Some(own)) = (silent, own) {
        return (Try::By(own), 1);
    }
    if detours {
        if let Some(other) = find(&|way| !way.own && way.works) {
            return (Try::By(other), 2);
        }
        if let Some(other) = find(&|way| !way.own) {
            return (Try::By(other), 3);
        }
    }
    match own {
        Some(own) => (Try::By(own), 4),
        None if !detours => (Try::Wait(Blame::OwnWay), 5),
        None if ways.iter().any(|way| way.works) => (Try::Wait(Blame::WayBack), 5),
        None => (Try::Wait(Blame::Server), 5),
    }
}

/// How long a replayed call waits for its reply before it is sent again.
const REPEATS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// When a call that was replayed `times` times, 1 or more, goes out again on the same connection and with the
/// same XID: a server that was still running it has dropped the replay, and its reply went to the
/// connection that is no more. 5 s, twice as long each time, 60 s at most.
pub fn repeat_after(times: u32) -> Duration {
    let doubled = REPEATS.0 * 2_u32.pow(times.saturating_sub(1).min(8));
    doubled.min(REPEATS.1)
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
