# shellcheck shell=bash disable=SC2016,SC2034,SC2154 # run sources it
#
# What run --setup does: systemd runs in the chroot, and "pg_pcache setup --apply" gives each
# cluster its pool.  The second restart is warm, the second call changes nothing, and the
# host may be booted.  Whatever fails on the way leaves the server running as before, and no
# unit, mount or file behind.

db=postgres
ver=$(versions_of pcache | tail -n 1)
[ -n "$ver" ] || must false "there is no package"
use_cluster "$ver" main
service=postgresql@$ver-main.service
mount_point=/srv/pcache/$ver-main
unit='/etc/systemd/system/srv-pcache-'$ver'\x2dmain.mount'
. "$ROOT/tests/deb/systemd.sh"
. "$ROOT/tests/deb/stock.sh"

must apt install systemd dbus "postgresql-$ver"
must apt install "/$(cd "$root/" && ls "debs/postgresql-$ver-pcache"_*.deb)"
boot_first
[ $booted = yes ] || chroot_lacks "systemd cannot run here"
say "systemd $(inside systemctl --version | awk 'NR == 1 {print $2}') runs, PostgreSQL $(version_of "postgresql-$ver")"

# The kernel's files on huge pages, which /sys of the namespace does not have
inside mkdir -p /sys/kernel/mm/transparent_hugepage
inside sh -c 'echo "always within_size advise [never] deny force" >/sys/kernel/mm/transparent_hugepage/shmem_enabled'

program() { inside "$bin/pg_pcache" "$@"; }
owner() { inside stat -c '%U %a' "$1" 2>/dev/null || true; }
mounted() { inside findmnt -n -o "${2:-FSTYPE}" "$1" 2>/dev/null || true; }
pool() { sql 'SELECT mode || $$ $$ || pool FROM pg_pcache_pool'; }
# marks: what must not change when nothing is to be done
marks() { inside sh -c 'stat -c "%n %i %Y" "$1" "$2"; head -n 1 "$3/postmaster.pid"' marks "$unit" "$conf/pcache.conf" "$pgdata"; }
# traces INSTANCE: what a call has left
traces() {
	inside sh -c 'find /etc/systemd -name "srv-pcache-*$2*"; find "/etc/postgresql/$1/$2" -name "*pcache*"
		! mountpoint -q "/srv/pcache/$1-$2" || echo mounted' traces "$ver" "$1"
}
# make_cluster NAME: a cluster with a table, which systemd has started
make_cluster() {
	use_cluster "$ver" "$1"
	must inside pg_createcluster "$ver" "$1" -- --data-checksums
	printf '%s\n' 'autovacuum = off' 'shared_buffers = 128MB' >"$root$conf/test.conf"
	inside chown postgres: "$conf/test.conf"
	must inside systemctl start "postgresql@$ver-$1.service"
	make_table "$1"
}

# ---------------------------------------------------------------- a cluster gets its pool

make_cluster main
ok "it runs as $service" test "$(active "$service")" = active
pid=$(pid_of "$ver/main")
tells "the plan" 0 'systemctl enable --now' setup "$ver/main"
printf '%s\n' "$out" | sed 's/^/    /'
is "the plan: nothing has changed" "$(traces main)" ''
tells "the plan, by the server's user" 0 "pcache.directory = '$mount_point'" setup
rc=0
inside_as postgres "$bin/pg_pcache" setup "$ver/main" --apply >>"$log" 2>&1 || rc=$?
is "the server's user cannot apply it" "$rc $(traces main)" '1 '

tells apply 0 'next start: WARM' setup "$ver/main" --apply
printf '%s\n' "$out" | sed 's/^/    /'
is "apply: the server was restarted" "$(active "$service") $([ "$(pid_of "$ver/main")" = "$pid" ] || echo anew)" 'active anew'
is "apply: the mount" "$(mounted "$mount_point") $(owner "$mount_point")" 'tmpfs postgres 700'
ok "apply: its options" grep -qE '(^|,)nosuid,nodev,noexec,.*size=1048576k,mode=700,.*huge=within_size' <<<"$(mounted "$mount_point" OPTIONS)"
is "apply: who can change what was written" "$(owner "$unit"), $(owner "$conf/pcache.conf")" 'root 644, postgres 644'
is "apply: the unit is enabled" "$(inside systemctl is-enabled "${unit##*/}")" enabled
ok "apply: systemd finds nothing wrong with it" inside systemd-analyze verify --man=no "${unit##*/}"
is "apply: the pool is in use" "$(pool)" "planned_restart $mount_point/pool"
is "apply: the data is the same" "$(all_rows)" "$rows"
before=$(marks)
tells "apply, once more" 0 'Nothing was to be done' setup --apply --cluster "$ver/main"
is "apply, once more: nothing has changed" "$(marks)" "$before"

must inside systemctl restart "$service"
is "restarted by systemd: warm" "$(last_start)" 'warm, the table is kept'
is "restarted: the data is the same" "$(all_rows)" "$rows"

# ---------------------------------------------------------------- pg_pcache restart

pid=$(pid_of "$ver/main")
tells "pg_pcache restart, without a command" 1 "belongs to unit \"$service\" of systemd" restart --cluster "$ver/main"
is "pg_pcache restart, without a command: the server goes on" "$(pid_of "$ver/main")" "$pid"
tells "pg_pcache restart, by systemctl" 0 '^last start: +warm' restart --cluster "$ver/main" --command="systemctl restart $service"
is "pg_pcache restart, by systemctl: the unit's server" "$(inside systemctl show --property=MainPID --value "$service") $([ "$(pid_of "$ver/main")" = "$pid" ] || echo anew)" "$(pid_of "$ver/main") anew"
is "pg_pcache restart, by systemctl: warm" "$(last_start)" 'warm, the table is kept'
# as docs/restart.md has it
inside mkdir -p "/etc/systemd/system/$service.d"
printf '[Service]\nExecStop=\nExecStop=-/usr/bin/pg_pcache --cluster %s prepare\nExecStop=-/usr/bin/pg_ctlcluster --skip-systemctl-redirect -m fast %%i stop\n' \
	"$ver/main" >"$root/etc/systemd/system/$service.d/prepare.conf"
inside systemctl daemon-reload
must inside systemctl restart "$service"
ok "a drop-in that makes a checkpoint before the stop" grep -q 'checkpoint: .* 1 checkpoint' <<<"$(inside journalctl -u "$service")"
is "a drop-in: warm" "$(last_start)" 'warm, the table is kept'
rm -r "$root/etc/systemd/system/$service.d"
inside systemctl daemon-reload
tells "as JSON" 0 '"uses_pool": true' setup "$ver/main" --apply --json
ok "as JSON: it can be read" perl -MJSON::PP -e 'decode_json($ARGV[0])->{configuration}{write} == 0 or die' "$out"

# ---------------------------------------------------------------- --cluster, by root

tells "root: status" 0 '^state: +dirty$' status --cluster "$ver/main"
tells "root: check" 0 'next start: WARM' check --cluster "$ver/main"
tells "root, without --cluster" 1 'cannot be executed by "root"' status -D "$pgdata"
must inside systemctl stop "$service"
tells "root: verify" 0 'next start: WARM' verify --cluster "$ver/main"
tells "root: save" 0 '' save --cluster "$ver/main" --to /var/lib/postgresql/image
is "root: whose the image is" "$(owner /var/lib/postgresql/image)" 'postgres 600'
is "root: no file of root's is where the server's user can write" "$(inside find "/etc/postgresql/$ver/main" /var/lib/postgresql "$mount_point" -user root)" ''
must inside systemctl start "$service"
# Nobody else's configuration: whoever could exchange it, root would do his work.
inside install -d -o daemon "/etc/postgresql/$ver/alien"
inside touch "/etc/postgresql/$ver/alien/postgresql.conf"
tells "root: a directory of another user in it" 1 'can be changed by other users' status --cluster "$ver/alien"
inside rm -r "/etc/postgresql/$ver/alien"
inside ln -s main "/etc/postgresql/$ver/link"
tells "root: a link" 1 'could not open directory' status --cluster "$ver/link"
inside rm "/etc/postgresql/$ver/link"

# ---------------------------------------------------------------- more, another mode, a boot

printf '%s\n' 'autovacuum = off' 'shared_buffers = 1GB' >"$root$conf/test.conf"
must inside systemctl restart "$service"
is "larger shared buffers: the limit of the mount is too small" "$(sql 'SELECT last_start FROM pg_pcache_pool')" unavailable
tells "larger shared buffers: apply" 0 'enlarged /srv/pcache' setup "$ver/main" --apply --mode=always
is "larger shared buffers: the pool" "$(pool)" "always $mount_point/pool"
printf '%s\n' 'autovacuum = off' 'shared_buffers = 128MB' >"$root$conf/test.conf"
before=$(stat -c %i "$root$conf/pcache.conf")
tells "the mode stays" 0 '' setup "$ver/main" --apply --no-restart
is "the mode stays: the file, too" "$(stat -c %i "$root$conf/pcache.conf")" "$before"
must inside systemctl restart "$service"
is "a boot: the data before" "$(all_rows)" "$rows"
shut
boot || must false "systemd does not boot again"
is "a boot: the mount comes with the server" "$(active "$service") $(mounted "$mount_point") $(owner "$mount_point")" 'active tmpfs postgres 700'
is "a boot: the pool" "$(pool) $(sql 'SELECT last_start FROM pg_pcache_pool')" "always $mount_point/pool cold"
is "a boot: the data is the same" "$(all_rows)" "$rows"
inside sh -c 'mkdir -p /sys/kernel/mm/transparent_hugepage; echo "[never] deny" >/sys/kernel/mm/transparent_hugepage/shmem_enabled'
must inside systemctl restart "$service"
is "a boot, and a restart: warm" "$(last_start)" 'warm, the table is kept'

# ---------------------------------------------------------------- what fails

make_cluster other
service=postgresql@$ver-other.service
# as_before NAME: nothing is left, and the server that was there runs
as_before() {
	is "$1: no trace of it" "$(traces other)" ''
	is "$1: the server runs" "$(active "$service") $(sql 'SHOW shared_preload_libraries') $(all_rows)" "active  $rows"
}
fails() { # NAME PATTERN
	tells "$1" 1 "$2" setup "$ver/other" --apply
	as_before "$1"
}
pid=$(pid_of "$ver/other")
inside chmod 777 /srv/pcache
fails "others can change a directory above the mount" 'directory "/srv/pcache" can be changed by other users'
inside chmod 755 /srv/pcache
inside ln -s /etc "/srv/pcache/$ver-other"
fails "a link in place of the mount point" "could not open directory"
inside rm "/srv/pcache/$ver-other"
inside chown root: "$conf"
fails "the server's user may not write to conf.d" 'could not create file'
inside chown postgres: "$conf"
printf 'include_if_exists = extra\n' >>"$root${conf%/*}/postgresql.conf"
printf 'pcache.mode = off\n' >"$root${conf%/*}/extra"
inside chown postgres: "${conf%/*}/extra"
fails "another file wins" 'the line for "pcache.mode" in .* has no effect'
rm "$root${conf%/*}/extra"
inside sh -c "mkdir -p '/etc/systemd/system/srv-pcache-$ver\\x2dother.mount.d' && printf '[Mount]\nOptions=nosuch=1\n' >'/etc/systemd/system/srv-pcache-$ver\\x2dother.mount.d/x.conf'"
inside systemctl daemon-reload
tells "the mount fails" 1 'could not mount' setup "$ver/other" --apply
inside rm -r "/etc/systemd/system/srv-pcache-$ver\\x2dother.mount.d"
as_before "the mount fails"
is "until here nobody has restarted the server" "$(pid_of "$ver/other")" "$pid"
inside mkdir -p "/etc/systemd/system/$service.d"
printf '[Service]\nExecStartPre=/usr/bin/test ! -e %s\n' "$conf/pcache.conf" >"$root/etc/systemd/system/$service.d/fails.conf"
inside systemctl daemon-reload
fails "the server does not come up" 'did not come up'
printf '%s\n' "$out" | sed 's/^/    /'
rm -r "$root/etc/systemd/system/$service.d"
inside systemctl daemon-reload
tells "without the obstacle" 0 'next start: WARM' setup "$ver/other" --apply
is "without the obstacle: the pool" "$(pool)" "planned_restart /srv/pcache/$ver-other/pool"

# a server that is down stays down
use_cluster "$ver" main
service=postgresql@$ver-main.service
must inside systemctl stop "$service"
must inside rm "$conf/pcache.conf"
tells "a server that is down" 0 'The next start of the server uses the pool' setup "$ver/main" --apply
is "a server that is down: it stays so" "$(active "$service")" inactive
must inside systemctl start "$service"
is "a server that is down: its start" "$(pool)" "planned_restart $mount_point/pool"

# A server without a unit must not get into that of whoever restarts it.
use_cluster "$ver" other
must inside systemctl stop "postgresql@$ver-other.service"
must inside groupadd pcache-extra
must inside usermod -aG pcache-extra postgres
must inside_as postgres pg_ctlcluster --skip-systemctl-redirect "$ver" other start
pid=$(pid_of "$ver/other")
in_unit() { # NAME STATUS PATTERN CLUSTER ARGUMENT...: of pg_pcache one, of systemd-run the others
	local name=$1 status=$2 pattern=$3 cluster=$4 rc=0
	shift 4
	out=$(inside systemd-run --quiet "$@" "$bin/pg_pcache" "$cluster" restart 2>&1) || rc=$?
	printf '%s\n' "$out" >>"$log"
	is "$name: exit status" $rc "$status"
	ok "$name: the answer" bash -c 'echo "$2" && grep -qE "$1" <<<"$2"' tells "$pattern" "$out"
}
in_unit "pg_pcache restart in a unit that ends all" 1 'would be in unit "run-.*\.service" of systemd' "--pgdata=$pgdata" --wait --pipe --uid=postgres
# without which the server could not read what this group may read, as a key for SSL
must inside gpasswd -d postgres pcache-extra
in_unit "pg_pcache restart without the user's groups" 1 'the server has group [0-9]+, which pg_pcache does not have' "--pgdata=$pgdata" --scope --uid=postgres
must inside usermod -aG pcache-extra postgres
is "pg_pcache restart, refused twice: the server goes on" "$(pid_of "$ver/other")" "$pid"
in_unit "pg_pcache restart in a scope" 0 '^last start: +warm' "--cluster=$ver/other" --scope
ok "pg_pcache restart in a scope: another server" [ "$(pid_of "$ver/other")" != "$pid" ]
is "pg_pcache restart in a scope: the data is the same" "$(all_rows)" "$rows"
must inside_as postgres pg_ctlcluster --skip-systemctl-redirect "$ver" other -m fast stop
must inside systemctl start "postgresql@$ver-other.service"

# what it says that one can undo it with
use_cluster "$ver" other
service=postgresql@$ver-other.service
tells "undo" 0 "rm $conf/pcache.conf" setup "$ver/other" --apply --mode=always
undo=$(sed -n '/^To undo it/,$p' <<<"$out" | sed -n 's/^    //p')
is "undo: it has four commands" "$(wc -l <<<"$undo")" 4
must inside sh -ec "$undo"
as_before "undo"
shut

echo "deb: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
