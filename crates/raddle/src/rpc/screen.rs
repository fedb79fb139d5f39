//! A terminal that is drawn again and again, and what is typed meanwhile.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

/// How often signals are looked for.
const TICK: u16 = 100;

/// The terminal's other screen; what was there comes back when this is dropped.
pub(super) struct Screen {
    /// How input was taken before, if it is a terminal's.
    before: Option<Termios>,
}

impl Screen {
    /// None where standard output is no terminal.
    pub(super) fn take() -> io::Result<Option<Screen>> {
        let (input, mut output) = (io::stdin(), io::stdout());
        if !output.is_terminal() {
            return Ok(None);
        }
        let before = input.is_terminal().then(|| tcgetattr(&input)).transpose()?;
        if let Some(before) = &before {
            let mut keys = before.clone();
            keys.local_flags
                .remove(LocalFlags::ICANON | LocalFlags::ECHO);
            tcsetattr(&input, SetArg::TCSANOW, &keys)?;
        }
        let screen = Screen { before };
        // The other screen, without a cursor.
        output.write_all(b"\x1b[?1049h\x1b[?25l")?;
        output.flush()?;
        Ok(Some(screen))
    }

    /// Shows what is made for the screen's width, as much of it as there is room for.
    pub(super) fn show(&self, text: impl Fn(usize) -> String) -> io::Result<()> {
        let (width, height) = size().unwrap_or((80, 24));
        let mut out = io::stdout().lock();
        out.write_all(fitted(&text(width), width, height).as_bytes())?;
        out.flush()
    }

    /// Waits for a time, until `q` is typed, or until `stop` says so; whether it is to go on.
    pub(super) fn wait(&self, time: Duration, stop: impl Fn() -> bool) -> io::Result<bool> {
        let start = Instant::now();
        let input = io::stdin();
        while start.elapsed() < time {
            if stop() {
                return Ok(false);
            }
            let left = time.saturating_sub(start.elapsed()).as_millis();
            let left = left.min(u128::from(TICK)) as u16;
            if self.before.is_none() {
                std::thread::sleep(Duration::from_millis(left.into()));
                continue;
            }
            let mut polled = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, left) {
                Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
                Ok(_) => {}
                Err(e) => return Err(e.into()),
            }
            let mut typed = [0; 16];
            // The terminal may be gone.
            let count = nix::unistd::read(&input, &mut typed)?;
            if count == 0 || typed[..count].contains(&b'q') {
                return Ok(false);
            }
        }
        Ok(!stop())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, before);
        }
        let mut output = io::stdout();
        let _ = output.write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = output.flush();
    }
}

/// From the upper left corner on, and nothing behind. Where there are too many lines the last one says so; a line
/// that is still too wide is cut.
fn fitted(text: &str, width: usize, height: usize) -> String {
    let mut out = "\x1b[H".to_owned();
    let mut lines: Vec<&str> = text.lines().collect();
    let more = lines.len().saturating_sub(height.saturating_sub(1));
    let said = format!("... {more} more lines");
    if lines.len() > height {
        lines.truncate(height.saturating_sub(1));
        lines.push(&said);
    }
    for (i, line) in lines.into_iter().enumerate() {
        if i > 0 {
            out.push_str("\r\n");
        }
        out.extend(line.chars().take(width));
        out.push_str("\x1b[K");
    }
    out + "\x1b[J"
}

/// Columns and lines of the terminal.
fn size() -> Option<(usize, usize)> {
    use std::os::fd::AsRawFd;
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the kernel writes a structure of this type, and the value outlives the call.
    let done = unsafe { libc::ioctl(io::stdout().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    let (columns, lines) = (usize::from(size.ws_col), usize::from(size.ws_row));
    (done == 0 && columns > 0 && lines > 0).then_some((columns, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_fits_the_screen() {
        let fits = "\x1b[Hab\x1b[K\r\ncé\x1b[K\x1b[J";
        assert_eq!(fitted("abx\ncé\n", 2, 2), fits);
        let said = "\x1b[Ha\x1b[K\r\n... 3 more lines\x1b[K\x1b[J";
        assert_eq!(fitted("a\nb\nc\nd\n", 80, 2), said);
        assert_eq!(fitted("", 80, 24), "\x1b[H\x1b[J");
    }
}
