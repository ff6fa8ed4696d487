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
# What start() is to start pg_ctl with: a program and its arguments.
with=()
start() { # OPTION...: start the server
	: >$log
	chown pcache $log
	user "${with[@]}" "$BIN/pg_ctl" -D $PGDATA -w -t 900 -l $log -o "-k /tmp -c listen_addresses= $*" start >/dev/null || { tail -n 20 $log && return 1; }
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
# A killed server keeps what is older than its checkpoint, which it needs a moment to note.
checkpoint() { sql checkpoint && sleep 3; }
# The same for a loss of power: until as many pages are listed as there will be.
listed() {
	local n last=''
	checkpoint
	for _ in {1..120}; do
		n=$(user "$BIN/pg_pcache" -D $PGDATA check --json | jq .power_lost.listed)
		[ "$n" -lt 1000 ] || [ "$n" != "$last" ] || return 0
		last=$n
		sleep 1
	done
	echo "only $n pages are listed" && return 1
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
# From now on, the server is an unpatched one with the library.
with_library() { BIN=$VMDIR/library$ROOT/build/pgsql-vanilla/bin; }
# A directory for a pool on fsdax, by hand: ndctl-setup starts thousands of programs, which
# takes minutes here.
fsdax_by_hand() {
	local device
	ndctl disable-region all
	ndctl init-labels all
	ndctl enable-region all
	ndctl create-namespace --mode=fsdax --map=dev --align=2M --name=pg-cache | tee /tmp/namespace
	device=/dev/$(jq -r .blockdev /tmp/namespace)
	mkfs.ext4 -q -b 4096 -m 0 -L cache -E stride=512,stripe_width=512 "$device"
	mount_by_hand
	install -d -o pcache -g pcache -m 0700 /pmem/pg/cache/pool
}
mount_by_hand() {
	mkdir -p /pmem/pg/cache
	mount -o noatime,dax=always "$(blkid -L cache)" /pmem/pg/cache
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

# ---------------------------------------------------------------- scenario "powercut"

POOL=/pmem/cache/pool
# What the shim of tests/powercut knows to be on media, if it is in use.
MEDIA=/pmem/wal/media
powercut_mount() {
	local label
	for label in cache wal; do
		mkdir -p /pmem/$label
		mount -o noatime,dax=always "$(blkid -L $label)" /pmem/$label
	done
}
# After a power cut: that, and the pool has lost what the shim says.
powercut_boot() { # SEED
	powercut_mount
	[ ! -e $MEDIA ] || user "$VMDIR/powercut/powercut" $POOL/pool $MEDIA "$1" | sed 's/^/  /'
	rm -f $MEDIA.ctl
}
# A pool and room for WAL, each on fsdax in an NVDIMM of its own, and settings.
powercut_set_up() {
	local label region
	ndctl disable-region all
	ndctl init-labels all
	ndctl enable-region all
	for label in cache wal; do
		region=$(ndctl list -R | jq -r ".[] | select(.available_size $([ $label = wal ] && echo '>' || echo '<') 250000000).dev")
		ndctl create-namespace --mode=fsdax --map=dev --align=2M --region="$region" --name=$label >/tmp/namespace
		mkfs.ext4 -q -b 4096 -m 0 -L $label "/dev/$(jq -r .blockdev /tmp/namespace)"
	done
	powercut_mount
	install -d -o pcache -g pcache -m 0700 $POOL /disk/work /pmem/wal/pg_wal
	chown pcache /pmem/wal
	# Segments are begun, and recycled, more often.
	user "$BIN/pg_resetwal" -D $PGDATA --wal-segsize=1 >/tmp/pg_resetwal
	cat >>$PGDATA/postgresql.conf <<END
shared_buffers = 32MB
persistent_cache_mode = always
persistent_cache_directory = '$POOL'
persistent_cache_required = on
checkpoint_timeout = 30s
log_checkpoints = on
max_wal_size = 64MB
min_wal_size = 32MB
autovacuum_naptime = 1s
autovacuum_vacuum_threshold = 20
autovacuum_vacuum_cost_delay = 0
max_prepared_transactions = 40
allow_in_place_tablespaces = on
max_connections = 30
END
	# Its reads go past a preloaded library.
	if user "$BIN/postgres" -C io_method -c io_method=io_uring -D $PGDATA >/dev/null 2>&1; then echo 'io_method = io_uring' >>$PGDATA/postgresql.conf; fi
	user "$BIN/pg_pcache" init -D $PGDATA --directory $POOL --size 32MB
	# All blocks are written: the shim maps without MAP_SYNC, so file systems may lose that.
	dd if=$POOL/pool of=$POOL/pool bs=1M conv=notrunc,fsync status=none
}
# start() with the shim, which begins with what the pool holds, and has it from then on.
powercut_start() { # lines|stores SEED [OPTION]...
	if [ "$1" = lines ]; then
		[ -e $MEDIA ] || user dd if=$POOL/pool of=$MEDIA bs=1M conv=fsync status=none
		with=(env "LD_PRELOAD=$VMDIR/powercut/libpowercut.so" PMEM_IS_PMEM_FORCE=1 "POWERCUT_SEED=$2" "POWERCUT_DIR=$POOL" "POWERCUT_IMAGE=$MEDIA")
	fi
	start "${@:3}"
}
# The server is down.  For pmem, WAL is in the NVDIMM.
powercut_conf() { # MODE METHOD
	local from to
	from=$(readlink -f $PGDATA/pg_wal)
	to=$PGDATA/pg_wal
	[ "$2" != pmem ] || to=/pmem/wal/pg_wal
	if [ "$from" != "$to" ]; then
		rm -rf /disk/work/pg_wal
		cp -a "$from" /disk/work/pg_wal
		rm -rf $PGDATA/pg_wal "${to:?}"
		cp -a /disk/work/pg_wal "$to"
		[ "$2" != pmem ] || user ln -s "$to" $PGDATA/pg_wal
		rm -rf /disk/work/pg_wal
	fi
	sed -i '/^persistent_cache_mode/d; /^wal_sync_method/d' $PGDATA/postgresql.conf
	printf '%s\n' "persistent_cache_mode = $1" "wal_sync_method = $2" >>$PGDATA/postgresql.conf
	# Another one is made of the pool.
	rm -f $MEDIA $MEDIA.*
	sync
}
# Sessions that go on until the power is cut.  Errors are expected.
powercut_load() { # CUT
	local client
	for client in 0 1; do
		user "$BIN/psql" -XAtq -f "/shared/powercut/acknowledged-$1-$client.sql" >"/shared/powercut/acknowledged-$1-$client.out" 2>/dev/null </dev/null &
		user "$BIN/psql" -Xq -o /dev/null -f "/shared/powercut/client-$1-$client.sql" >/dev/null 2>&1 </dev/null &
	done
	user "$BIN/pgbench" -n -c 1 -T 100000 >/dev/null 2>&1 </dev/null &
}
powercut_recover() { # MODE
	user "$BIN/pg_pcache" -D $PGDATA verify | sed 's/^/  /' || true
	user perl "$HERE/guest/recover.pl" --pg-bin "$BIN" --pgdata $PGDATA --pool $POOL/pool --work /disk/work --mode "$1" --acknowledged /shared/powercut
}
