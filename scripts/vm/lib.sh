# Sourced by what runs this machine's programs under another kernel: packages that are unpacked and not installed, a file
# system for the guest, QEMU. No KVM is needed, and nothing of this machine is touched.

# unpack FOLDER FILE-THAT-IT-HAS PACKAGE: of a package by its name or its file, once. Of a kernel only what a guest may want:
# its drivers alone are hundreds of megabytes.
unpack() {
  local folder=$1 file=$2 package=$3
  compgen -G "$folder/$file" >/dev/null && return
  # Each step by itself: in a condition, nothing ends this at what fails.
  rm -rf "$folder" "$folder.part" && mkdir -p "$folder.part" || return
  if [ ! -f "$package" ]; then
    (cd "$folder.part" && apt-get download "$package" >/dev/null) || return
    package=$(ls "$folder.part"/*.deb) || return
  fi
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$folder.part" --exclude='./usr/share' --exclude='*/kernel/sound' \
    --exclude='*/kernel/drivers/[!nv]*' --exclude='*/kernel/drivers/net/[!bmtnv]*' || return
  rm -f "$folder.part"/*.deb
  mv "$folder.part" "$folder"
}

# start_root ROOT: a file system with busybox; SKIP names applets whose programs come from this machine.
start_root() {
  local root=$1 skip=" busybox $2 " applet
  rm -rf "$root"
  mkdir -p "$root"/{bin,sbin,usr/bin,usr/sbin,etc,proc,sys,dev,run,tmp,mnt,root,var/lib}
  ln -s /run "$root/var/run"
  add_program "$root" "$(command -v busybox)"
  mv "$root/usr/sbin/busybox" "$root/bin/"
  for applet in $(busybox --list); do
    case $skip in
      *" $applet "*) ;;
      *) ln -s busybox "$root/bin/$applet" ;;
    esac
  done
  printf 'root:x:0:0:root:/root:/bin/sh\n_rpc:x:105:65534::/run/rpcbind:/bin/false\nnobody:x:65534:65534::/:/bin/false\n' >"$root/etc/passwd"
  printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
  printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
  printf 'passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n' >"$root/etc/nsswitch.conf"
}

# add_program ROOT PROGRAM [NAME]: with the libraries that it names.
add_program() {
  local library
  cp -L "$2" "$1/usr/sbin/${3:-${2##*/}}"
  { ldd "$2" 2>/dev/null || true; } | { grep -o '/[^ ]*' || true; } | while read -r library; do
    mkdir -p "$1${library%/*}"
    cp -L "$library" "$1$library"
  done
}

# add_modules ROOT KERNEL-FOLDER MODULE...: modules of an unpacked kernel by their names, with those that they need. What is
# built into the kernel is left out; ROOT/modules lists the others, for the guest to load.
add_modules() {
  local root=$1 folder=$2 version from name file
  shift 2
  version=$(kernel_version "$folder")
  from=$folder/lib/modules/$version
  [ -d "$from" ] || from=$folder/usr/lib/modules/$version
  mkdir -p "$root/lib/modules/$version"
  cp "$from"/modules.{order,builtin} "$root/lib/modules/$version/"
  : >"$root/modules"
  for name in "$@"; do
    file=$(module_file "$from" "$name")
    if [ -n "$file" ]; then
      echo "$name" >>"$root/modules"
      add_module "$root/lib/modules/$version" "$from" "$file"
    elif ! grep -q "/$name\.ko" "$from/modules.builtin"; then
      echo "the kernel has no module $name" >&2
    fi
  done
  busybox depmod -b "$root" "$version"
}

module_file() { (cd "$1" && find kernel -name "$2.ko" -o -name "$2.ko.xz" -o -name "${2//_/-}.ko" -o -name "${2//_/-}.ko.xz") | head -n 1; }

# add_module TO FROM FILE: unpacked, after those that its own list of dependencies names.
add_module() {
  local to=$1 from=$2 file=$3 needed path
  [ ! -e "$to/${file%.xz}" ] || return 0
  mkdir -p "$to/${file%/*}"
  case $file in
    *.xz) xz -dc "$from/$file" >"$to/${file%.xz}" ;;
    *) cp "$from/$file" "$to/$file" ;;
  esac
  needed=$(tr '\0' '\n' <"$to/${file%.xz}" | grep -a '^depends=' | head -n 1)
  for needed in $(tr , ' ' <<<"${needed#depends=}"); do
    path=$(module_file "$from" "$needed")
    if [ -n "$path" ]; then add_module "$to" "$from" "$path"; fi
  done
}

kernel_version() {
  local image
  image=$(ls "$1"/boot/vmlinuz-* | head -n 1)
  printf '%s\n' "${image##*/vmlinuz-}"
}

# boot KERNEL-FOLDER ROOT LOG MEGABYTES SECONDS WORDS [QEMU-OPTION...]: packs the root and runs it. The console goes to LOG and
# here; whatever ends this shell ends the machine. BOOT_IN is a command that is put before QEMU's.
# `no_timer_check`: a busy host makes the emulated timer late, which Linux takes for a broken one.
boot() {
  local folder=$1 root=$2 log=$3 memory=$4 limit=$5 words=$6 machine shown
  shift 6
  (cd "$root" && find . | cpio -o -H newc -R 0:0 --quiet | gzip -1) >"$root.gz"
  : >"$log"
  timeout -k 5 "$limit" "${BOOT_IN[@]}" qemu-system-x86_64 -machine pc,accel=tcg -cpu max -smp 2 -m "$memory" -nographic \
    -no-reboot -nodefaults -serial stdio -kernel "$(ls "$folder"/boot/vmlinuz-* | head -n 1)" -initrd "$root.gz" "$@" \
    -append "console=ttyS0 quiet panic=1 oops=panic no_timer_check $words" </dev/null >"$log" 2>&1 &
  machine=$!
  trap 'kill $machine 2>/dev/null || true' EXIT
  trap 'exit 143' TERM
  trap 'exit 130' INT
  tail -n +1 -f --pid=$machine "$log" | sed -u 's/\r$//' &
  shown=$!
  # 124: the time was over.
  wait $machine || echo "QEMU ended with $?"
  wait $shown
  trap - EXIT TERM INT
  sed -i 's/\r$//' "$log"
}
