#!/bin/bash
# Shared by tools/demo/run and the scripts in tools/bench, which source
# tools/lib.sh first: servers without a network port, and a few numbers about
# them and the machine.

clean_environment
export LC_ALL=C

# What to clean up at exit: sockets and pools outside build/, and servers.
SOCK=
declare -a SCRATCH=()
declare -A SERVER=()  # name -> process id
declare -A SERVER_LOG=()
declare -A READY=()   # name -> when it accepted connections, in ms since 1970
declare -A TOOK_MS=() # name -> from launch until then

cleanup() {
	local rc=$? p
	trap - EXIT
	trap '' INT TERM HUP
	case $rc in
	0 | 130 | 143) ;;
	*)
		for p in "${!SERVER[@]}"; do
			printf -- '----- last lines of %s -----\n%s\n' "${SERVER_LOG[$p]#"$ROOT"/}" "$(tail -n 15 "${SERVER_LOG[$p]}")" >&2
		done
		;;
	esac
	# pgbench and psql first; bash has made the background ones ignore ^C.
	for p in $(jobs -p); do
		case " ${SERVER[*]} " in *" $p "*) ;; *) kill -TERM "$p" 2>/dev/null || true ;; esac
	done
	for p in "${SERVER[@]}"; do kill -QUIT "$p" 2>/dev/null || true; done
	for p in "${SERVER[@]}"; do wait "$p" 2>/dev/null || true; done
	[ ${#SCRATCH[@]} -eq 0 ] || rm -rf "${SCRATCH[@]}"
	exit "$rc"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# as_unprivileged_dropping ARGUMENT...: like as_unprivileged, but root leaves a
# process at hand for one thing: drop_os_cache asks it to drop the page cache.
as_unprivileged_dropping() {
	[ "$(id -u)" -eq 0 ] || return 0
	# Answers each line on its input; ends when the other side is gone.
	coproc DROPPER {
		trap '' INT TERM HUP
		while read -r _; do
			sync
			if echo 3 2>/dev/null >/proc/sys/vm/drop_caches; then echo dropped; else echo refused; fi
		done 2>/dev/null
	}
	# Opened anew: the shell closes its own ends of the pipes when it execs.
	exec 7>"/dev/fd/${DROPPER[1]}" 8<"/dev/fd/${DROPPER[0]}"
	PCACHE_DROPPER=1 exec "$ROOT/tools/as-user" --fd=7 --fd=8 "$0" "$@"
}

# fresh_work DIR: an empty work directory, whatever a killed run has left there.
fresh_work() {
	local f d
	for f in "$1"/*/postmaster.pid; do
		[ ! -e "$f" ] || "$BUILD/pgsql/bin/pg_ctl" -D "${f%/*}" -m immediate stop >/dev/null 2>&1 || true
	done
	if [ -e "$1/scratch" ]; then
		while IFS= read -r d; do
			case $d in */pcache-demo.* | */pcache-bench.*) rm -rf "$d" ;; esac
		done <"$1/scratch"
	fi
	rm -rf "$1"
	mkdir -p "$1"
}

# scratch DIR WORK: remove DIR at exit, or at the start of the next run.
scratch() {
	SCRATCH+=("$1")
	printf '%s\n' "$1" >>"$2/scratch"
}

# pool_directory NAME MEGABYTES: prints a new directory with that much room,
# below POOL_DIR or on /dev/shm.
pool_directory() {
	local free
	if [ -z "${POOL_DIR:-}" ]; then
		shm_dir "$1" "$2"
		return
	fi
	if [ ! -d "$POOL_DIR" ] || [ ! -w "$POOL_DIR" ]; then
		die "POOL_DIR=$POOL_DIR is not a directory that $(id -un) may write" \
			"create it, or as root: chown $(id -un) $POOL_DIR"
	fi
	free=$(df -Pm "$POOL_DIR" | awk 'NR == 2 {print $4}')
	[ "$free" -ge "$2" ] || die "POOL_DIR=$POOL_DIR has $free MB left, $2 MB are needed" \
		"free some, or make the pool smaller"
	mktemp -d "$(cd "$POOL_DIR" && pwd -P)/$1.XXXXXX"
}

# free_memory: megabytes that programs can have
free_memory() {
	local free limit
	free=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
	# In a container the limit of the control group counts.
	if limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null) && [ "$limit" != max ]; then
		limit=$(((limit - $(awk '/^(anon|shmem) / {s += $2} END {printf "%.0f\n", s}' /sys/fs/cgroup/memory.stat)) / 1048576))
		[ "$limit" -ge "$free" ] || free=$limit
	fi
	printf '%s\n' "$free"
}

# need_memory MEGABYTES HINT, need_disk DIR MEGABYTES HINT
need_memory() {
	local free
	free=$(free_memory)
	[ "$free" -ge "$1" ] || die "$free MB of memory are free, $1 MB are needed" "$2"
}
need_disk() {
	local free
	free=$(df -Pm "$1" | awk 'NR == 2 {print $4}')
	[ "$free" -ge "$2" ] || die "$free MB of disk space are left in $1, $2 MB are needed" "$3"
}

# fs_of DIR: the file system's type, and whether it is DAX.
fs_of() {
	local fs options
	fs=$(df --output=fstype "$1" | tail -n 1)
	options=$(findmnt -nT "$1" -o OPTIONS 2>/dev/null || true)
	case ,$options, in *,dax,* | *,dax=always,*) fs="$fs (dax)" ;; esac
	printf '%s\n' "$fs"
}

# machine: one line.
machine() {
	printf '%s, %s processors, %s of memory, Linux %s%s\n' \
		"$(awk -F ': *' '/^(model name|Model)/ {print $2; exit}' /proc/cpuinfo | grep . || uname -m)" \
		"$(nproc)" "$(awk '/^MemTotal/ {printf "%.1f GB", $2 / 1048576}' /proc/meminfo)" "$(uname -r)" \
		"$(v=$(systemd-detect-virt 2>/dev/null) && [ "$v" != none ] && printf ', virtual (%s)' "$v")"
}

# launch NAME BIN DATADIR LOG [OPTION]...: start a server, as a child of ours, and
# return as soon as it accepts connections.
launch() {
	local name=$1 bin=$2 data=$3 log=$4 begin lines tail line ready=
	shift 4
	: >"$log"
	begin=$(now_ms)
	# Not in our process group: ^C is for us to handle.
	setsid "$bin/postgres" -D "$data" -c log_line_prefix='%n ' -c logging_collector=off \
		-c listen_addresses= -c unix_socket_directories="$SOCK" "$@" \
		</dev/null >>"$log" 2>&1 7>&- 8>&- 9>&- &
	SERVER[$name]=$! SERVER_LOG[$name]=$log
	# wait without asking again and again, which would take half a processor from the server
	exec {lines}< <(exec tail -n +1 -f -s 0.2 --pid="${SERVER[$name]}" "$log" 7>&- 8>&- 9>&-)
	tail=$!
	while read -r line <&"$lines"; do
		case $line in *'database system is ready to accept '*connections*) ready=${line%% *} && break ;; esac
	done
	exec {lines}<&-
	kill "$tail" 2>/dev/null || true
	if [ -z "$ready" ]; then
		kill -0 "${SERVER[$name]}" 2>/dev/null || unset "SERVER[$name]"
		tail -n 20 "$log" >&2
		die "the server does not start" "see $log"
	fi
	READY[$name]=${ready/./}
	# shellcheck disable=SC2034 # for those who source this
	TOOK_MS[$name]=$((READY[$name] - begin))
}

# await_pool LOG: until the server has put its pool into huge pages, as far as that is
# possible, which it does while it runs
await_pool() {
	local i
	for i in {1..600}; do
		! grep -q 'persistent cache: the pool has' "$1" || return 0
		sleep 0.2
	done
	warn "the server has not said how its pool is after $((i / 5)) s"
}

# stop NAME: a fast shutdown.
stop() {
	local pid=${SERVER[$1]:-}
	[ -n "$pid" ] || return 0
	kill -INT "$pid"
	wait "$pid" || die "the server was not shut down cleanly"
	unset "SERVER[$1]"
}

# crash NAME POOL: kill -9 of the server and all its processes; returns when the
# last one has let go of the pool, which the next start would otherwise wait for.
crash() {
	# shellcheck disable=SC2046 # a list
	kill -KILL "${SERVER[$1]}" $(pgrep -P "${SERVER[$1]}") || true
	wait "${SERVER[$1]}" 2>/dev/null || true
	unset "SERVER[$1]"
	until flock -n "$2/pool" true; do sleep 0.01; done
}

# conf DATADIR: what all servers here have in common, added to postgresql.conf.
conf() {
	cat >>"$1/postgresql.conf" <<CONF
wal_level = minimal
max_wal_senders = 0
autovacuum = off
checkpoint_timeout = 1h
max_wal_size = 8GB
huge_pages = off
log_checkpoints = off
CONF
}

# ended_cpu NAME: CPU time in clock ticks of the server's processes that have ended: backends.
ended_cpu() {
	local stat
	stat=$(<"/proc/${SERVER[$1]}/stat")
	# shellcheck disable=SC2086 # split it
	set -- ${stat##*) }
	echo $((${14} + ${15}))
}

children_of() { pgrep -P "${SERVER[$1]}" | sort; }

# foreground COMMAND...: like running it, but a signal to us is not kept waiting.
foreground() {
	"$@" 7>&- 8>&- 9>&- &
	wait $!
}

# quantiles: reads numbers, prints "n median q1 q3 min max low high"; low..high
# is a confidence interval of the median (>= 95 % if there are 6 numbers or
# more), from order statistics, so nothing is assumed about the distribution.
quantiles() {
	sort -g | awk '
		{ v[NR] = $1 }
		function q(p,   h, i) { h = (NR - 1) * p + 1; i = int(h); return i >= NR ? v[NR] : v[i] + (h - i) * (v[i + 1] - v[i]) }
		END {
			if (!NR) { print 0, 0, 0, 0, 0, 0, 0, 0; exit }
			# the largest k with 2 * P(Binomial(NR, 1/2) < k) <= 0.05
			c = 1; for (i = 0; i < NR; i++) c /= 2
			sum = 0; k = 0
			for (i = 0; i < NR; i++) { sum += c; if (2 * sum > 0.05) break; k = i + 1; c = c * (NR - i) / (i + 1) }
			if (k < 1) k = 1
			print NR, q(0.5), q(0.25), q(0.75), v[1], v[NR], v[k], v[NR + 1 - k]
		}'
}

# forget_files DIR: have the kernel forget what it caches of the files below.
forget_files() {
	sync -f "$1"
	# shellcheck disable=SC2016 # for the inner shell
	find "$1" -type f -size +0 -print0 |
		xargs -0 -P 2 -n 64 sh -c 'for f; do dd if="$f" iflag=nocache count=0 status=none; done' sh
}

# drop_os_cache DIR BIN...: have the kernel forget all files, or only those below
# DIR if no process of root helps.  Sets dropped to how that was done.
# shellcheck disable=SC2034 # for those who source this
drop_os_cache() {
	local dir=$1 answer='' b
	shift
	sync -f "$dir"
	if [ -n "${PCACHE_DROPPER:-}" ] && { echo drop >&7; } 2>/dev/null; then
		read -r -t 120 answer <&8 || true
	fi
	if [ "$answer" != dropped ]; then
		dropped='dropped for the data files (posix_fadvise, for want of root)'
		forget_files "$dir"
		return
	fi
	dropped='dropped (/proc/sys/vm/drop_caches), programs read in again'
	# It is the data that is to be cold, not the programs.
	for b; do
		{
			cat "$b/postgres" "$b/psql" "$b/pgbench" "$b/../lib"/*.so
			ldd "$b/postgres" "$b/psql" "$b/pgbench" | awk '$3 ~ /^\// {print $3}' | sort -u | xargs cat
			"$b/pgbench" --version
			"$b/postgres" --version
		} >/dev/null
	done
}

# per_tenth T0 FILE...: from pgbench's logs of transactions, "second count" for each
# 0.1 s since T0 (ms)
per_tenth() {
	local t0=$1
	shift
	cat "$@" | awk -v t0="$t0" '
		{ t = ($5 - t0 / 1000) + $6 / 1e6; if (t < 0) t = 0; n[b = int(t * 10)]++; if (b > last) last = b }
		END { for (b = 0; b < last; b++) print b / 10, n[b] + 0 }'
}

# seconds_until TPS: reads what per_tenth has printed, and prints when the first
# second begins that has so many
seconds_until() {
	awk -v want="$1" '
		{ n[NR] = $2 }
		END {
			for (i = 1; i + 9 <= NR; i++) {
				s = 0
				for (j = 0; j < 10; j++) s += n[i + j]
				if (s >= want) { printf "%.1f\n", (i - 1) / 10; exit }
			}
			printf "> %d\n", NR / 10 - 1
		}'
}

# cached_mb DIR: megabytes of large files below that the kernel still caches; "" if that can't be told.
cached_mb() {
	command -v fincore >/dev/null || return 0
	find "$1" -type f -size +1M -print0 |
		xargs -0 fincore --bytes --noheadings --output RES | awk '{s += $1} END {printf "%d\n", s / 1048576}'
}
