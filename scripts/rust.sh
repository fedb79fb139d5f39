# Sourced by need.sh: which Rust is there, and which packages bring one that is new enough.

# The oldest that will do; Cargo.toml says it.
rust_wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
# Debian keeps a newer Rust beside its own for what browsers are built with; it has the usual commands.
declare -A rust_kinds=(
  [web]="cargo=cargo-web rustc=rustc-web cargo-fmt=rustfmt-web cargo-clippy=rust-web-clippy"
  [own]="cargo=cargo rustc=rustc cargo-fmt=rustfmt cargo-clippy=rust-clippy"
)

# Whether version $1 is $2 or later.
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# The version of the compiler that is there; nothing where there is none.
rust_version() { { rustc --version 2>/dev/null || true; } | cut -d' ' -f2; }

rust_is_there() {
  command -v cargo >/dev/null && at_least "$(rust_version)" "$rust_wanted"
}

# rustup's commands come first in the path, and its package excludes Debian's Rust.
by_rustup() {
  command -v rustup >/dev/null || [[ $(command -v cargo) == */.cargo/bin/cargo ]]
}

# The kind of Debian's Rust that is installed, or else can be and is new enough.
rust_kind() {
  local kind names version
  for kind in web own; do
    names=" ${rust_kinds[$kind]} "
    names=${names#* rustc=}
    names=${names%% *}
    version=$(apt-cache policy "$names" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9].*\)$/\1/p')
    if [ -n "$version" ] && at_least "$version" "$rust_wanted"; then
      echo "$kind $version"
      return
    fi
  done
}

# Adds the packages that bring these commands of Rust to what is missing, and says why; where there are
# none, says what to do and ends.
rust_packages() {
  local found kind version tool names why advice
  found=$(rust_version)
  why="${found:+this is Rust $found, and }Rust $rust_wanted or later is needed"
  advice="install it with rustup (https://rustup.rs)"
  if [ "$1" != cargo ]; then
    why="$1 is missing"
    advice="rustup component add rustfmt clippy"
  elif by_rustup; then
    advice="rustup update stable"
  fi
  if by_rustup || ! command -v apt-cache >/dev/null; then
    echo "$why: $advice" >&2
    exit 1
  fi
  read -r kind version <<<"$(rust_kind)" || true
  if [ -z "${kind-}" ] && can_install; then
    # A fresh system does not know yet what its archives have.
    apt-get update -qq || echo 'the package lists cannot be renewed' >&2
    read -r kind version <<<"$(rust_kind)" || true
  fi
  if [ -z "${kind-}" ]; then
    echo "$why, which this system has no package of: $advice" >&2
    exit 1
  fi
  [ "$1" != cargo ] || echo "$why: taking the system's package of Rust ${version%%+*}"
  for tool in "$@"; do
    names=" ${rust_kinds[$kind]} "
    names=${names#* "$tool"=}
    missing+=("${names%% *}")
  done
}
