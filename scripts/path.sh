# Sourced, by any shell. sudo gives root a PATH of its own, which lacks the cargo of whoever called it:
# that one is found again here. Only what would not be found otherwise is added, at the end.
if ! command -v cargo >/dev/null; then
  for home in "${HOME:-}" "$(getent passwd "${SUDO_USER:-}" | cut -d: -f6)"; do
    if [ -n "$home" ] && [ -x "$home/.cargo/bin/cargo" ]; then
      PATH=$PATH:$home/.cargo/bin
      # A cargo that rustup has installed looks for its toolchain in the home of who calls it.
      if [ -d "$home/.rustup" ]; then RUSTUP_HOME=${RUSTUP_HOME:-$home/.rustup}; export RUSTUP_HOME; fi
      export PATH
      break
    fi
  done
fi
