#!/usr/bin/env bash
# install.sh BINARY DESTDIR PREFIX: the program, man pages, completions, unit and example
# configuration. install.sh --remove DESTDIR PREFIX takes them away again, but for the configuration.
set -euo pipefail
cd "$(dirname "$0")/.."
what=$1 dest=$2 prefix=$3
root=$dest$prefix
bash=$root/share/bash-completion/completions/raddle
zsh=$root/share/zsh/vendor-completions/_raddle
fish=$root/share/fish/vendor_completions.d/raddle.fish
unit=$dest/lib/systemd/system/raddle.service

if [ "$what" = --remove ]; then
  rm -f "$root/sbin/raddle" "$bash" "$zsh" "$fish" "$unit" "$root"/share/man/man8/raddle*.8
  exit 0
fi
install -D -m 755 "$what" "$root/sbin/raddle"
mkdir -p "$root/share/man/man8" "$(dirname "$bash")" "$(dirname "$zsh")" "$(dirname "$fish")"
"$what" man "$root/share/man/man8"
"$what" completions bash > "$bash"
"$what" completions zsh > "$zsh"
"$what" completions fish > "$fish"
sed "s|@PREFIX@|$prefix|" packaging/raddle.service | install -D -m 644 /dev/stdin "$unit"
[ -e "$dest/etc/raddle/raddle.toml" ] ||
  install -D -m 644 packaging/raddle.toml "$dest/etc/raddle/raddle.toml"
echo "installed $root/sbin/raddle; start it with: systemctl enable --now raddle"
