#!/usr/bin/env bash
# install.sh BINARY DESTDIR PREFIX: the program, man pages, completions, unit and example
# configuration, each named as it is written. With the prefixes /usr and /usr/local the unit and the
# configuration are where systemd and raddle look for them, outside of the prefix; with any other
# prefix everything is inside. install.sh --remove DESTDIR PREFIX takes it all away again, but for
# the configuration.
set -euo pipefail
cd "$(dirname "$0")/.."
what=$1 dest=$2 prefix=${3%/}
root=$dest$prefix
case $prefix in
  /usr) system=yes zsh=vendor-completions ;;
  /usr/local) system=yes zsh=site-functions ;;
  *) system='' zsh=site-functions ;;
esac
program=$root/sbin/raddle
bash=$root/share/bash-completion/completions/raddle
zsh=$root/share/zsh/$zsh/_raddle
fish=$root/share/fish/vendor_completions.d/raddle.fish
run="$prefix/sbin/raddle run"
if [ "$system" ]; then
  unit=$dest/lib/systemd/system/raddle.service
  config=$dest/etc/raddle/raddle.toml
  enable='systemctl enable --now raddle'
else
  unit=$root/lib/systemd/system/raddle.service
  config=$root/etc/raddle/raddle.toml
  run="$run --config $prefix/etc/raddle/raddle.toml"
  enable="systemctl enable --now $unit"
fi

if [ "$what" = --remove ]; then
  for file in "$program" "$root"/share/man/man8/raddle*.8 "$bash" "$zsh" "$fish" "$unit"; do
    [ -e "$file" ] || continue
    rm "$file"
    echo "removed $file"
  done
  if [ -e "$config" ]; then
    echo "left $config: it may have your changes; remove it yourself"
  fi
  # Directories of the system stay; those of a prefix of our own go once they are empty.
  if [ -z "$system" ] && [ -d "$root" ]; then
    find "$root" -depth -type d -empty -delete
  fi
  exit 0
fi

# put MODE FILE: standard input becomes FILE.
put() {
  install -D -m "$1" /dev/stdin "$2"
  echo "installed $2"
}
put 755 "$program" < "$what"
mkdir -p "$root/share/man/man8"
"$what" man "$root/share/man/man8"
printf 'installed %s\n' "$root"/share/man/man8/raddle*.8
"$what" completions bash | put 644 "$bash"
"$what" completions zsh | put 644 "$zsh"
"$what" completions fish | put 644 "$fish"
sed "s|@RUN@|$run|" packaging/raddle.service | put 644 "$unit"
if [ -e "$config" ]; then
  echo "left $config as it is"
else
  put 644 "$config" < packaging/raddle.toml
fi
echo "start it with: $enable"
