#!/bin/bash
# For the jobs in the guest.
set -euo pipefail
BIN=$ROOT/build/pgsql/bin
PGDATA=/disk/pgdata
STATE=/disk/ndctl-setup.json
export PGHOST=/tmp PGUSER=postgres PGDATABASE=postgres

user() { "$ROOT/tools/ndctl-setup/lib/run-as" --user=pcache --env='PG*' -- env HOME=/tmp "$@"; }
# What is to run at boot must be root's alone, which the host's files need not be.
root_setup() {
	cp -r "$ROOT/tools/ndctl-setup" /run/
	chown -R 0:0 /run/ndctl-setup
	chmod -R go-w /run/ndctl-setup
}
setup() {
	local tool=/run/ndctl-setup/ndctl-setup
	[ -x $tool ] || tool=$ROOT/tools/ndctl-setup/ndctl-setup
	"$tool" "$@" --state=$STATE
}
apply() { # PROFILE OPTION...
	local profile=$1
	shift
	setup apply --profile="$profile" --pgdata=$PGDATA --user=pcache --bindir="$BIN" --boot=fstab --write-conf "$@"
}
# After a boot: /etc is new, the state file knows the mounts.
remount() {
	modprobe xfs
	modprobe dm-raid
	modprobe raid1
	vgchange -ay >/dev/null 2>&1 || true
	jq -r '.records[].undo | select(.kind == "line" and .file == "/etc/fstab") | .line' $STATE >>/etc/fstab
	jq -r '.records[].undo | select(.kind == "mount") | .where' $STATE | xargs mkdir -p
	mount -a
}

log=/disk/server.log
start() { # OPTION...: start the server
	: >$log
	chown pcache $log
	user "$BIN/pg_ctl" -D $PGDATA -w -t 900 -l $log -o "-k /tmp -c listen_addresses= $*" start >/dev/null || { tail -n 20 $log && return 1; }
}
stop() { user "$BIN/pg_ctl" -D $PGDATA -w -t 900 -m "${1:-fast}" stop >/dev/null; }
sql() { user "$BIN/psql" -XAtq -v ON_ERROR_STOP=1 -c "$1"; }
kill_server() { # kill -9 of all its processes
	local pid children
	pid=$(head -n 1 $PGDATA/postmaster.pid)
	children=$(pgrep -P "$pid" | xargs)
	# shellcheck disable=SC2086 # several
	kill -9 "$pid" $children
	while kill -0 "$pid" 2>/dev/null; do sleep 0.2; done
	for child in $children; do while kill -0 "$child" 2>/dev/null; do sleep 0.2; done; done
	rm -f $PGDATA/postmaster.pid
}
kept() { grep -oE 'persistent cache: kept [0-9]+ of [0-9]+[^,]*' $log | tail -n 1; }
kept_numbers() { kept | sed -E 's/.*kept ([0-9]+) of ([0-9]+).*/\1 \2/'; }
kept_ratio() { # PERCENT: were at least that many kept?
	local n m
	read -r n m < <(kept_numbers)
	echo "kept ${n:-0} of ${m:-0}"
	if [ -z "${n:-}" ] || [ "$n" -eq 0 ] || [ $((n * 100)) -lt $((m * $1)) ]; then
		grep 'persistent cache' $log
		return 1
	fi
}
# Contents of all tables of pgbench, in a few numbers.
contents() {
	sql "select 'accounts', count(*), sum(abalance), sum(hashtext(a::text)::bigint) from pgbench_accounts a
		union all select 'branches', count(*), sum(bbalance), sum(hashtext(b::text)::bigint) from pgbench_branches b
		union all select 'tellers', count(*), sum(tbalance), sum(hashtext(t::text)::bigint) from pgbench_tellers t
		union all select 'history', count(*), sum(delta), sum(hashtext(h::text)::bigint) from pgbench_history h order by 1"
}
load() { user "$BIN/pgbench" -n -c 2 -t "${1:-50}" postgres >/dev/null 2>&1; }
# grep that must find nothing ("! grep" would not end a job)
none() { if grep "$@"; then return 1; fi; }
# on_node N: does that node have as much shared memory as the pool is large?  The
# numa_maps of a process only count the pages that it has touched.
on_node() {
	local pool shmem
	numastat -m | grep -E '^ +Node|^Shmem '
	pool=$(($(stat -c %b /pmem/pg/cache/pool/pool) / 2))
	shmem=$(sed -n 's/.*Shmem: *\([0-9]*\) kB/\1/p' "/sys/devices/system/node/node$1/meminfo")
	echo "$shmem kB on node $1, the pool has $pool kB"
	[ "$shmem" -ge "$pool" ]
}
# What the DIMMs are divided into.
namespaces() { ndctl list -N -v | jq -rs 'flatten[] | "\(.mode) \(.size) node \(.numa_node)"' | sort; }
# The machine address of a byte of a file on fsdax, as the page tables say.
address_of() { perl "$HERE/guest/address.pl" "$1" "$2"; }
# A media error there: machine check -> nfit -> list of bad blocks.
inject() { # ADDRESS
	local d=/sys/kernel/debug/mce-inject
	modprobe mce-inject
	echo sw >$d/flags
	echo 0xbd000000000000c0 >$d/status
	printf '0x%x\n' "$1" >$d/addr
	echo 0x8c >$d/misc
	echo 0 >$d/cpu
	echo 9 >$d/bank
	sleep 1
}

# ---------------------------------------------------------------- scenario "reboot"

export IMAGE=$PGDATA.pcache/image
# With systemd, its units start and stop the server; the scenario uses these names.
SERVER=postgresql@18-main.service
KEEPER=pg-pcache@18-main.service
with_systemd() { [ "$(cat /proc/1/comm)" = systemd ]; }
# Has the boot ended?
booted() { timeout 900 systemctl is-system-running --wait || systemctl --failed --no-pager; }
# /etc is a new one after each boot: the next one finds these units.
keep_units() {
	rm -rf /disk/etc
	mkdir -p /disk/etc/systemd/system
	cp -a /etc/systemd/system/{postgresql@*,pg-pcache@*,*.mount,local-fs.target.wants} /disk/etc/systemd/system/
	echo $SERVER >/disk/wanted
}
# What pg_pcache said in this boot, as the unit.
said() { if with_systemd; then journalctl -b -u $KEEPER -o cat --no-pager; else cat /disk/said; fi; }
# Blocks that all processes have read since the start.  Statistics take a second to arrive.
reads() { sleep 2 && sql "select coalesce(sum(reads), 0) from pg_stat_io where object = 'relation'"; }
# The first start after a reboot: warm, the contents as before, and no relation read.
is_warm() {
	local n m
	contents | diff /disk/before - >&2
	read -r n m < <(kept_numbers)
	echo "kept ${n:-0} of ${m:-0}, $(reads) blocks of relations read"
	[ "${n:-0}" -gt 0 ] && [ $((n * 1000)) -ge $((m * 999)) ] && [ "$(reads)" -eq 0 ]
}
is_cold() {
	contents | diff /disk/before - >&2
	[ "$(reads)" -gt 0 ]
	grep 'persistent cache' $log | tail -n 2
	[ -z "$(kept)" ] || [ "$(kept_numbers | cut -d ' ' -f 1)" -eq 0 ]
}
