#!/usr/bin/env bash
# install.sh BINARY DESTDIR PREFIX: the program, man pages, completions, units with their user, and example
# configurations, each named as it is written. With the prefixes /usr and /usr/local the units and the
# configurations are where systemd and raddle look for them, outside of the prefix; with any other
# prefix everything is inside. install.sh --remove DESTDIR PREFIX takes it all away again, but for
# the configurations.
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
rpc="$prefix/sbin/raddle rpc --config"
if [ "$system" ]; then
  units=$dest/lib/systemd/system
  users=$dest/usr/lib/sysusers.d/raddle.conf
  configs=$dest/etc/raddle
  rpc="$rpc /etc/raddle/rpc.toml"
  enable='systemctl enable --now raddle'
else
  units=$root/lib/systemd/system
  users=$root/lib/sysusers.d/raddle.conf
  configs=$root/etc/raddle
  run="$run --config $prefix/etc/raddle/raddle.toml"
  rpc="$rpc $prefix/etc/raddle/rpc.toml"
  enable="systemctl enable --now $units/raddle.service"
fi
unit=$units/raddle.service
rpc_unit=$units/raddle-rpc.service

if [ "$what" = --remove ]; then
  for file in "$program" "$root"/share/man/man8/raddle*.8 "$bash" "$zsh" "$fish" "$unit" "$rpc_unit" "$users"; do
    [ -e "$file" ] || continue
    rm "$file"
    echo "removed $file"
  done
  for config in "$configs/raddle.toml" "$configs/rpc.toml"; do
    [ -e "$config" ] || continue
    echo "left $config: it may have your changes; remove it yourself"
  done
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
# fill KEY TEXT FILE: the file with the text in the place of its key.
fill() {
  local text
  text=$(cat "$3")
  printf '%s\n' "${text//"$1"/"$2"}"
}
put 755 "$program" < "$what"
mkdir -p "$root/share/man/man8"
# Commands that there are no more have left theirs.
rm -f "$root"/share/man/man8/raddle.8 "$root"/share/man/man8/raddle-*.8
"$what" man "$root/share/man/man8"
printf 'installed %s\n' "$root"/share/man/man8/raddle*.8
"$what" completions bash | put 644 "$bash"
"$what" completions zsh | put 644 "$zsh"
"$what" completions fish | put 644 "$fish"
fill @RUN@ "$run" packaging/raddle.service | put 644 "$unit"
fill @RPC@ "$rpc" packaging/raddle-rpc.service | put 644 "$rpc_unit"
put 644 "$users" < packaging/raddle.sysusers
# The units run as this user. A package's own scripts make it, from the same file.
if [ -z "$system" ]; then
  echo "the units run as the user raddle, whom this makes: systemd-sysusers $users"
elif [ -z "$dest" ] && [ "$(id -u)" = 0 ] && ! getent passwd raddle > /dev/null; then
  if command -v systemd-sysusers > /dev/null; then
    systemd-sysusers "$users"
  else
    useradd --system --user-group --no-create-home --shell /usr/sbin/nologin raddle
  fi
  echo 'made the user raddle'
fi
for config in raddle.toml rpc.toml; do
  if [ -e "$configs/$config" ]; then
    echo "left $configs/$config as it is"
  else
    put 644 "$configs/$config" < "packaging/$config"
  fi
done
echo "start it with: $enable"
