#!/usr/bin/env bash
# Makes the Linux guest of `make test-linux`: Debian's cloud kernel and an initial file system with open-iscsi,
# multipath-tools, sg3-utils, e2fsprogs, nvme-cli and tcpdump, all from this machine's own apt sources. None of it is installed.
# Usage: linux-guest.sh FOLDER     makes FOLDER/vmlinuz and FOLDER/initrd, unless they exist.
set -euo pipefail

folder=${1:?usage: linux-guest.sh FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
log() { printf 'linux-guest: %s\n' "$*" >&2; }

# The content of the guest; a change of this file or of the guest's script rebuilds it.
packages=(linux-image-cloud-amd64 open-iscsi multipath-tools sg3-utils e2fsprogs busybox kmod udev util-linux
    nvme-cli tcpdump)
programs=(iscsid iscsiadm multipath multipathd dmsetup udevadm mke2fs e2fsck fstrim blkdiscard kmod busybox
    sg_inq sg_vpd sg_persist sg_unmap sg_write_same sg_compare_and_write sg_opcodes sg_xcopy sg_get_lba_status
    sg_rtpg sg_readcap sg_luns sg_requests nvme tcpdump taskset)
modules=(virtio_pci virtio_net iscsi_tcp sd_mod sg ext4 dm_multipath dm_service_time dm_round_robin scsi_dh_alua
    crc32c_generic crc32c_intel nvmet_tcp nvme_tcp null_blk af_packet)

stamp=$(cat "$0" "$here/linux-guest-init.sh" | sha256sum | cut -c1-16)
[ -e "$folder/vmlinuz" ] && [ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ] && exit 0

[ "$(id -u)" -eq 0 ] || { log "run as root: the guest is built in a folder of its own with chroot" && exit 1; }
rm -rf "$folder"
mkdir -p "$folder/archives/partial" "$folder/root"
folder=$(cd "$folder" && pwd)
log "fetching ${packages[*]}"
: >"$folder/status"
if ! apt-get -qq -y --download-only --no-install-recommends -o Dir::State::status="$folder/status" \
    -o Dir::Cache::archives="$folder/archives" -o Debug::NoLocking=1 install "${packages[@]}" >"$folder/apt.log" 2>&1; then
    tail -n 5 "$folder/apt.log" >&2
    log "apt-get cannot fetch the packages; run 'apt-get update', or see $folder/apt.log"
    exit 1
fi

log "unpacking"
root=$folder/root
mkdir -p "$root/usr/"{bin,sbin,lib,lib64}
for name in bin sbin lib lib64; do ln -s "usr/$name" "$root/$name"; done
for archive in "$folder"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$archive" | tar -x -C "$root" --keep-directory-symlink
done
kernel=$(basename "$root"/boot/vmlinuz-*)
version=${kernel#vmlinuz-}
cp "$root/boot/$kernel" "$folder/vmlinuz"
chroot "$root" depmod "$version"

log "selecting the guest's files"
small=$root/small
mkdir -p "$small/usr/"{bin,sbin,lib,lib64} "$small/"{proc,sys,dev,run,tmp,mnt,etc,var/lib}
for name in bin sbin lib lib64; do ln -s "usr/$name" "$small/$name"; done
take() { # take PATH: a file with the same place in the guest
    [ -e "$small/$1" ] && return
    # Links may be absolute, relative to the guest's root.
    mkdir -p "$small/$(dirname "$1")"
    cp "$root$(chroot "$root" /bin/busybox readlink -f "/$1")" "$small/$1"
}
libraries() { # the libraries of a program, by their place, as the guest's own loader finds them
    chroot "$root" /lib64/ld-linux-x86-64.so.2 --list "/$1" 2>/dev/null | grep -o '/[^ ]*\.so[^ ]*' || true
}
for program in "${programs[@]}"; do
    path=$(cd "$root" && find usr/bin usr/sbin -name "$program" | head -n 1)
    [ -n "$path" ] || { log "no program $program in the packages" && exit 1; }
    take "$path"
    for library in $(libraries "$path"); do take "${library#/}"; done
done
take usr/lib64/ld-linux-x86-64.so.2
# The library that ends threads is loaded when the first one ends.
take usr/lib/x86_64-linux-gnu/libgcc_s.so.1
for extra in usr/lib/systemd/systemd-udevd usr/lib/udev/scsi_id usr/bin/systemd-tmpfiles; do
    [ -e "$root/$extra" ] || [ -L "$root/$extra" ] || continue
    take "$extra"
    for library in $(libraries "$extra"); do take "${library#/}"; done
done
# multipath finds its checkers and priorities at run time; udev its rules.
cp -r "$root/usr/lib/multipath" "$small/usr/lib/" 2>/dev/null || cp -r "$root/lib/multipath" "$small/usr/lib/"
for library in $(find "$small/usr/lib/multipath" -name '*.so' -printf 'usr/lib/multipath/%f\n'); do
    for needed in $(libraries "$library"); do take "${needed#/}"; done
done
mkdir -p "$small/usr/lib/udev"
cp -r "$root/usr/lib/udev/rules.d" "$small/usr/lib/udev/"
cp -r "$root/etc/iscsi" "$small/etc/" 2>/dev/null || mkdir -p "$small/etc/iscsi"
for module in "${modules[@]}"; do
    chroot "$root" modprobe -S "$version" --show-depends "$module" 2>/dev/null | grep -o '/lib/modules/[^ ]*' || true
done | sort -u | while read -r file; do take "usr${file}"; done
cp "$root/usr/lib/modules/$version/modules."{order,builtin,builtin.modinfo} "$small/usr/lib/modules/$version/"
chroot "$root" depmod -b /small "$version"
cp "$here/linux-guest-init.sh" "$small/init"
chmod +x "$small/init"
chroot "$root" /bin/busybox sh -c 'cd /small && busybox find . | busybox cpio -o -H newc' >"$folder/initrd"
rm -rf "$root" "$folder/archives"
echo "$stamp" >"$folder/stamp"
log "kernel $version, $(du -h "$folder/initrd" | cut -f1) of files"
