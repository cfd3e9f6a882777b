#!/bin/sh
# For tools/compat: in its own mount, process, IPC and host name namespaces, runs a shell command in a root where the
# tree is /lockstep, read-only except for its build folder.
#   compat_inside.sh ROOT TREE BUILD CCACHE setup|run COMMAND [arguments]
# `setup` has the machine's network; `run` has its own, so that tests share no name, port or interface with the machine.
set -eu
root=$1 tree=$2 build=$3 ccache=$4 kind=$5 command=$6
shift 6

# A mount point, so that programs in it can change how mounts propagate.
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount --bind "$tree" "$root/lockstep"
mount -o remount,bind,ro "$root/lockstep"
mount --bind "$build" "$root/lockstep/build"
mount --bind "$ccache" "$root/ccache"

network=
if [ "$kind" = setup ]; then
  cat /etc/resolv.conf >"$root/etc/resolv.conf"
else
  hostname compat
  network="unshare --net"
  command="ip link set lo up; $command"
fi
# Not exec: this shell is process 1 and reaps the processes that the command leaves behind.
code=0
$network chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
  CCACHE_DIR=/ccache LOCKSTEP_JOBS="${LOCKSTEP_JOBS:-}" sh -c "cd /lockstep; $command" sh "$@" || code=$?
exit $code
