#!/bin/bash
# Shared by scripts that work in a bare Debian in a chroot, as root.  Source it
# after lib.sh.
#
# The outer half of such a script calls chroot_session, which runs the script
# again as its inner half, in namespaces of its own for mounts, processes and
# shared memory.  Nothing stays mounted or running, whatever happens, and the
# directory below /var/tmp is removed.  The inner half calls chroot_make, and then "inside".
#
# Root in the chroot is root, so it must run nothing that others have made.  What may
# be hostile, as the packages of "make deb", is installed by the root of a user
# namespace: chroot_isolated.
#
# A script that uses this defines chroot_lacks WHY [HINT]..., which ends it when
# there can be no chroot.
#
#   FRESH_CACHE=DIR   keeps the chroot as debootstrap made it, and downloaded packages,
#                     for the next run (/var/cache/pg-pcache-fresh); must be root's; "no": keeps nothing
#   PG_MIRROR=URI     an archive to use instead of the one apt knows
#   EXTRA_SOURCES=FILE  more sources for apt in the chroot: FILE is a .list or .sources
#                     file, and a key that it names by Signed-By is taken from the host

# chroot_session NAME SCRIPT ARGUMENT...: SCRIPT --inside SCRATCH ARGUMENT...; returns its exit status
chroot_session() {
	local name=$1 script=$2 rc=0
	shift 2
	[ "$(id -u)" -eq 0 ] || chroot_lacks "only root can make a chroot"
	command -v debootstrap >/dev/null || chroot_lacks "debootstrap is missing" "apt-get install debootstrap"
	command -v unshare >/dev/null || chroot_lacks "unshare is missing" "apt-get install util-linux"
	unshare --mount --pid --ipc --net --fork --kill-child true 2>/dev/null || chroot_lacks "there can be no namespaces of our own here"
	# Root's alone: in the chroot there are setuid programs, what apt has of passwords, and
	# users with the same numbers as users of the host.
	chroot_scratch=$(mktemp -d "/var/tmp/pcache-$name.XXXXXX")
	chroot_child=''
	trap chroot_cleanup EXIT
	trap 'exit 130' INT TERM HUP PIPE
	unshare --mount --mount-proc --pid --ipc --fork --kill-child \
		"$RUN_AS" --user=root --env='*' -- "$script" --inside "$chroot_scratch" "$@" </dev/null &
	chroot_child=$!
	wait "$chroot_child" || rc=$?
	chroot_child=''
	return $rc
}

# shellcheck disable=SC2317 # called by the trap
chroot_cleanup() {
	[ -z "$chroot_child" ] || kill -KILL "$chroot_child" 2>/dev/null || true
	[ -z "$chroot_child" ] || wait "$chroot_child" 2>/dev/null || true
	# The mounts went with their namespace, as soon as its processes have ended.
	find "$(cgroup_root)/${chroot_scratch##*/}" -depth -type d -exec rmdir {} \; 2>/dev/null || true
	for _ in 1 2 3 4 5; do
		if rm -rf --one-file-system "$chroot_scratch" 2>/dev/null; then break; fi
		sleep 1
	done
}

cgroup_root() { awk '$3 == "cgroup2" {print $2; exit}' /proc/mounts; }

# chroot_cgroup SCRATCH: from now on everything runs in a cgroup that belongs to the
# root of chroot_isolated, so that a systemd can run there; nothing happens where that
# cannot be.
chroot_cgroup() {
	local cgroup
	cgroup=$(cgroup_root)/${1##*/}
	if [[ $cgroup = /*/* ]] && mkdir "$cgroup" 2>/dev/null; then
		chown -R "$chroot_base:$chroot_base" "$cgroup"
		echo $$ >"$cgroup/cgroup.procs" || true
	fi
}

# debootstrap and apt's lists are asked for the proxy that apt uses.
chroot_proxy() { apt-config dump 2>/dev/null | sed -nE "s/^Acquire::$1::Proxy \"(.*)\";/\1/p" | grep -v '^DIRECT$' | tail -n 1; }

# chroot_sources FILE: the sources of apt in FILE, of either form, with their keys
chroot_sources() {
	local kind=list key
	[ -r "$1" ] || die "EXTRA_SOURCES=$1 cannot be read" "it is a file of apt's sources, as in /etc/apt/sources.list.d"
	! grep -qi '^Types:' "$1" || kind=sources
	install -m 644 "$1" "$root/etc/apt/sources.list.d/extra.$kind"
	while IFS= read -r key; do
		[ -r "$key" ] || die "EXTRA_SOURCES=$1 names the key $key, which cannot be read"
		install -D -m 644 "$key" "$root$key"
	done < <(sed -nE 's,^.*\bsigned-by[=:] *(/[^] ]+).*,\1,Ip' "$1")
}

# chroot_make SCRATCH RELEASE: makes the chroot SCRATCH/root; sets root and log
chroot_make() {
	local release=$2 cache base mirrors mirror keyring began=$SECONDS made=no f like=()
	root=$1/root log=$1/log
	umask 022
	mapfile -t mirrors < <(debian_mirrors | grep -E '^https?://')
	[ ${#mirrors[@]} -gt 0 ] || chroot_lacks "apt's configuration names no Debian archive (http or https)"
	keyring=$(debian_keyring) || chroot_lacks "Debian's archive keyring is missing" "apt-get install debian-archive-keyring"
	[ -n "${http_proxy:-}" ] || { http_proxy=$(chroot_proxy http) && export http_proxy; } || unset http_proxy
	[ -n "${https_proxy:-}" ] || { https_proxy=$(chroot_proxy https) && export https_proxy; } || unset https_proxy

	cache=${FRESH_CACHE:-/var/cache/pg-pcache-fresh}
	base=$cache/$release-$(dpkg --print-architecture).tar
	if [ "$cache" != no ]; then
		[ -d "$cache" ] || install -d -m 0700 "$cache"
		# What is in there root runs.
		[ "$(stat -c '%u %a' "$cache")" = "0 700" ] || die "FRESH_CACHE=$cache is not root's alone" "chown root: $cache && chmod 700 $cache"
	fi
	mkdir "$root"
	if [ "$cache" != no ] && [ -e "$base" ]; then
		tar -x -p --numeric-owner -f "$base" -C "$root"
		say "chroot of $release from $base: $((SECONDS - began)) s"
	else
		# An older debootstrap does not know the newest releases, which are made like sid.
		[ -e "/usr/share/debootstrap/scripts/$release" ] || like=(/usr/share/debootstrap/scripts/sid)
		for mirror in "${mirrors[@]}"; do
			rm -rf "${root:?}"
			if debootstrap --variant=minbase --include=git,make,ca-certificates --keyring="$keyring" \
				"$release" "$root" "$mirror" "${like[@]}" >"$log" 2>&1 </dev/null; then
				made=yes
				break
			fi
		done
		[ $made = yes ] || {
			tail -n 25 "$log" | sed 's/^/    /' >&2
			chroot_lacks "debootstrap cannot make a chroot of $release here" "is that the name of a release of Debian, such as bookworm, trixie or forky?"
		}
		if [ "$cache" != no ]; then
			tar -c --one-file-system --numeric-owner -f "$base.new" -C "$root" .
			mv "$base.new" "$base"
		fi
		say "chroot of $release by debootstrap: $((SECONDS - began)) s"
	fi

	# apt as on the host: the archive, how it is reached, and nothing else.
	rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
	for mirror in "${mirrors[@]}"; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main"
	done >"$root/etc/apt/sources.list"
	cp "$keyring" "$root/usr/share/keyrings/debian-archive-keyring.gpg"
	[ -z "${EXTRA_SOURCES:-}" ] || chroot_sources "$EXTRA_SOURCES"
	apt_acquire >"$root/etc/apt/apt.conf.d/90host"
	[ ! -d /etc/apt/auth.conf.d ] || cp -r /etc/apt/auth.conf.d "$root/etc/apt/"
	for f in /etc/apt/auth.conf /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
		[ ! -e "$f" ] || cp -L "$f" "$root$f"
	done

	mount -t proc proc "$root/proc"
	mount -t sysfs -o ro sysfs "$root/sys"
	mkdir -p "$root/dev/pts" "$root/dev/shm"
	mount -t devpts -o ptmxmode=0666,newinstance devpts "$root/dev/pts"
	mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
	# Packages are downloaded once, and kept for 60 days.  Who comes second has none.
	if [ "$cache" != no ] && exec 8>"$cache/archives-$release.lock" && flock -n 8; then
		mkdir -p "$cache/archives-$release"
		find "$cache/archives-$release" -name '*.deb' -ctime +60 -delete
		FRESH_ARCHIVES=$cache/archives-$release
		mount --bind "$FRESH_ARCHIVES" "$root/var/cache/apt/archives"
	fi
	# No service is started in here.
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod 755 "$root/usr/sbin/policy-rc.d"
}

# Users of the chroot have these numbers outside, which nobody else has.
chroot_base=1610612736

# chroot_isolated COMMAND...: what is in the chroot becomes the property of other
# users, and COMMAND runs there as root of user, mount, process and IPC namespaces
# of its own, whose only file system is the chroot.  Nothing may change the chroot
# from outside afterwards.  Exit status: the command's, or 76 if that cannot be had here.
chroot_isolated() {
	local gate=$root.gate pid rc=0
	# The packages that were downloaded stay as they are; the others are for this chroot.
	if mountpoint -q "$root/var/cache/apt/archives"; then
		umount "$root/var/cache/apt/archives"
		find "$FRESH_ARCHIVES" -maxdepth 1 -name '*.deb' -exec cp --reflink=auto -t "$root/var/cache/apt/archives" {} +
	fi
	# Links have no rights.  A change of the owner clears setuid bits.
	# shellcheck disable=SC2016 # perl's variables
	find "$root" -xdev ! -type l -print0 | perl -0ne 'BEGIN { $base = shift @ARGV } chomp; my ($device, $mode, $uid, $gid) = (lstat)[ 0, 2, 4, 5 ];
		next if $device != ($on //= $device); # what is mounted there
		next if $uid >= $base; # by another of its names
		chown($base + $uid, $base + $gid, $_) && chmod($mode & 07777, $_) or die "$_: $!\n"' "$chroot_base" || return 1
	chown "$chroot_base" "${root%/*}"
	mkfifo -m 600 "$gate"
	# Until the users of the namespace are known, it has no root; capabilities are kept until then.
	# shellcheck disable=SC2016 # for the shells in there
	unshare --user --keep-caps --mount --pid --ipc --uts --fork --kill-child bash -c '
		read -r _ && exec </dev/null unshare --mount --setgid 0 --setuid 0 bash -c '\''
			set -e
			trap "exit 76" EXIT
			mount --rbind "$1" "$1"
			mount -t proc proc "$1/proc"
			cd "$1"
			# The old root is on top of the new one, and goes.
			pivot_root . .
			umount -l .
			cd /
			shift
			[ "$(stat -c %u /)" = 0 ] && [ "$(grep -cE "^[0-9]+ [0-9]+ [0-9:]+ [^ ]+ / " /proc/self/mountinfo)" = 1 ]
			trap - EXIT
			exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 JOBS="$JOBS" "$@"'\'' isolated "$@" || exit 76
		exit 76' isolated "$root" "$@" <"$gate" 8>&- &
	pid=$!
	exec {opened}>"$gate"
	while [ -d "/proc/$pid" ] && [ "$(readlink "/proc/$pid/ns/user")" = "$(readlink /proc/self/ns/user)" ]; do sleep 0.1; done
	if { echo "0 $chroot_base 65536" >"/proc/$pid/uid_map" && echo "0 $chroot_base 65536" >"/proc/$pid/gid_map"; } 2>/dev/null; then
		echo go >&"$opened"
		exec {opened}>&-
		wait "$pid" || rc=$?
	else
		exec {opened}>&-
		wait "$pid" || true
		rc=76
	fi
	return $rc
}

# A command that brings what in_chroot runs into other namespaces
guest=()

# in_chroot USER NAMES [VARIABLE=VALUE]... COMMAND...: with the variables NAMES, too.
# Values are exported, because all users can read the arguments of a process.
in_chroot() (
	user=$1 names=HOME,DEBIAN_FRONTEND,JOBS,$2
	shift 2
	unset LANG LANGUAGE TZ TERM "${!LC_@}"
	export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive JOBS
	while [[ $1 =~ ^[A-Za-z_][A-Za-z0-9_]*= ]]; do
		export "${1?}"
		names+=,${1%%=*}
		shift
	done
	exec "${guest[@]}" "$RUN_AS" --user="$user" --root="${root:-/}" --env="$names" -- "$@"
)

# inside [VARIABLE=VALUE]... COMMAND...: by root, in the chroot
inside() { in_chroot root http_proxy,https_proxy HOME=/root "$@"; }

# inside_as USER [VARIABLE=VALUE]... COMMAND...: by that user, in the chroot
inside_as() { in_chroot "$1" '' HOME=/tmp "${@:2}"; }
