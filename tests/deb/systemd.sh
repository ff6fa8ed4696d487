# shellcheck shell=bash disable=SC2034,SC2154 # run's scripts source it
#
# systemd as the first process of namespaces of its own in the chroot, so that services
# are really started and stopped.

booted=no

# boot: the chroot's systemd, in the background; "inside" is in its namespaces then
boot() {
	local try first state
	cat >"$scratch/init" <<-'INIT'
		set -e
		mount -t proc proc /proc
		mount -t tmpfs -o mode=755 tmpfs /run
		mount -t tmpfs -o mode=755 tmpfs /sys
		mkdir -p /sys/fs/cgroup /run/dev
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
		# systemd wants file systems to be mounted in these places.
		mount -t tmpfs -o mode=755 tmpfs /run/dev
		cd /run/dev
		for f in null zero full random urandom tty; do touch $f && mount --bind /dev/$f $f; done
		mkdir shm pts
		mount -t tmpfs -o mode=1777 tmpfs shm
		mount -t devpts -o newinstance,ptmxmode=0666 devpts pts
		ln -s pts/ptmx ptmx
		ln -s /proc/self/fd fd
		mount --rbind /run/dev /dev
		cd /
		exec env -i container=lxc PATH="$PATH" /lib/systemd/systemd --system systemd.unit=multi-user.target
	INIT
	unshare --pid --mount --cgroup --net --ipc --uts --fork --kill-child bash "$scratch/init" >>"$log" 2>&1 </dev/null &
	machine=$!
	guest=()
	for ((try = 0; try < 300; try++)); do
		# The first process of the namespaces, by its number out here
		first=$(cat "/proc/$machine/task/$machine/children" 2>/dev/null || true)
		[ -z "$first" ] || guest=(nsenter --target "${first%% *}" --pid --mount --cgroup --net --ipc --uts --)
		[ -d "/proc/$machine" ] || break
		state=''
		[ ${#guest[@]} -eq 0 ] || state=$(inside systemctl is-system-running 2>/dev/null || true)
		if [ "$state" = running ] || [ "$state" = degraded ]; then
			booted=yes
			return
		fi
		sleep 0.2
	done
	guest=() booted=no
	return 1
}

# shut: the host goes down in order
shut() {
	inside systemctl poweroff || true
	wait "$machine" || true
	guest=() booted=no
}

active() { inside systemctl is-active "$1" 2>/dev/null || true; }
pid_of() { head -n 1 "$root/var/lib/postgresql/$1/postmaster.pid"; }

# boot_first: once systemd is installed; services are started from then on, unless it cannot run
boot_first() {
	grep -q '^0::/.*deb-test' /proc/self/cgroup || return 0
	mv /usr/sbin/policy-rc.d "$scratch/"
	boot || mv "$scratch/policy-rc.d" /usr/sbin/
}
