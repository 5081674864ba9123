#!/bin/busybox sh
# The init and only program of the guest: it runs the host's commands, line by line from the serial console,
# and prints the exit code of each line.
/bin/busybox mkdir -p /proc /sys /dev /run /tmp
/bin/busybox --install -s /bin 2>/dev/null
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts && mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /run
mount -t tmpfs -o size=512m tmpfs /tmp
echo "root:x:0:0:root:/tmp:/bin/sh" >/etc/passwd
echo "root:x:0:" >/etc/group
echo 3 >/proc/sys/kernel/printk
stty -echo </dev/console
exec </dev/console >/dev/console 2>&1
echo "guest: $(uname -r) is ready"
while IFS= read -r line; do
    [ -z "$line" ] && continue
    echo "$line" >/tmp/line
    sh /tmp/line </dev/null >/tmp/output 2>&1
    code=$?
    tail -c 6000 /tmp/output
    echo "guest: exit $code"
done
