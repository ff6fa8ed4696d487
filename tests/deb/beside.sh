# shellcheck shell=bash disable=SC2016,SC2034,SC2154 # run sources it
#
# What run does where the release has another PostgreSQL than 18: ours is installed
# beside it, while that server is running and goes on.  Its libpq5 stays.  An extension
# is compiled for 18, a cluster is upgraded to 18 and is restarted warm.  The host is
# shut down and booted, and the unit keeps the cache.  At last 18 goes, and the release's
# own server still has all data.
#
# Services are really started and stopped: systemd is the first process of namespaces
# of its own in the chroot.  Where that cannot be, clusters are started by hand, and
# one line says so.

old=$(inside apt-cache show postgresql | sed -nE 's/^Depends: .*\bpostgresql-([0-9]+).*/\1/p' | head -n 1)

# ---------------------------------------------------------------- systemd

. "$ROOT/tests/deb/systemd.sh"


must apt install systemd dbus build-essential dpkg-dev lintian
must apt --download-only install "postgresql-$old" "postgresql-server-dev-$old"
packages=()
for p in postgresql postgresql-client postgresql-server-dev; do packages+=("$(cd "$root/" && ls debs/$p-18_*.deb)"); done
for p in jit pcache-tools; do packages+=("$(cd "$root/" && ls debs/postgresql-18-${p}_*.deb)"); done
packages=("${packages[@]/#//}")
must apt --download-only install "${packages[@]}"
boot_first
if [ $booted = yes ]; then
	say "systemd $(inside systemctl --version | awk 'NR == 1 {print $2}') runs"
	# only what root does is handed on to it
	cluster() { inside pg_ctlcluster "$ver" "$instance" "$@"; }
else
	echo "skipped: services, because systemd cannot run here; clusters are started by hand"
fi

# ---------------------------------------------------------------- the release's own server

inside sh -c 'mkdir -p /etc/postgresql-common/createcluster.d && echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/test.conf'
must apt install "postgresql-$old" "postgresql-server-dev-$old"
inside sh -c 'find /etc /usr /var/lib -xdev | sort' >"$scratch/files.before"
libpq=$(version_of libpq5)
must inside pg_createcluster "$old" main -- --data-checksums
use_cluster "$old" main
must cluster start
# An extension in C, whose function an index calls
mkdir "$scratch/turned"
cat >"$scratch/turned/turned.c" <<'C'
#include "postgres.h"
#include "fmgr.h"
#include "varatt.h"

PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(turned);

Datum
turned(PG_FUNCTION_ARGS)
{
	text	   *in = PG_GETARG_TEXT_PP(0);
	int			n = VARSIZE_ANY_EXHDR(in);
	text	   *out = palloc(n + VARHDRSZ);

	SET_VARSIZE(out, n + VARHDRSZ);
	for (int i = 0; i < n; i++)
		VARDATA(out)[i] = VARDATA_ANY(in)[n - 1 - i];
	PG_RETURN_TEXT_P(out);
}
C
printf '%s\n' 'MODULES = turned' 'EXTENSION = turned' 'DATA = turned--1.0.sql' 'PGXS := $(shell $(PG_CONFIG) --pgxs)' 'include $(PGXS)' >"$scratch/turned/Makefile"
printf '%s\n' "default_version = '1.0'" >"$scratch/turned/turned.control"
echo "CREATE FUNCTION turned(text) RETURNS text IMMUTABLE STRICT LANGUAGE C AS '\$libdir/turned';" >"$scratch/turned/turned--1.0.sql"
extension() { inside make -s -C "$scratch/turned" "PG_CONFIG=/usr/lib/postgresql/$1/bin/pg_config" "${@:2}"; }
must extension "$old" install
cat >"$scratch/data.sql" <<'SQL'
\set ON_ERROR_STOP 1
CREATE EXTENSION turned;
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, note text);
INSERT INTO customers SELECT i, 'customer ' || i, repeat(md5(i::text), 5) FROM generate_series(1, 150000) i;
CREATE INDEX ON customers (name);
CREATE TABLE places AS SELECT i AS id, 'place ' || i AS name FROM generate_series(1, 20000) i;
CREATE INDEX ON places (turned(name));
VACUUM ANALYZE;
SQL
must inside_as postgres "PGCLUSTER=$old/main" createdb shop
must inside_as postgres "PGCLUSTER=$old/main" psql -qX -d shop -f "$scratch/data.sql"
contents() {
	local t
	for t in customers places; do
		printf '%s %s\n' "$t" "$(sql "SET jit = off; SELECT count(*) || ' ' || sum(hashtextextended(x::text, 0)) FROM $t x")"
	done
}
contents >"$scratch/contents"
ok "$old: both tables are there" [ "$(grep -cE '^[a-z]+ [1-9][0-9]* -?[0-9]+$' "$scratch/contents")" = 2 ]
answers() { is "$1: the extension answers, by its index" "$(sql "SET enable_seqscan = off; SELECT id FROM places WHERE turned(name) = '1174 ecalp'")" 4711; }
answers "$old"
running=$(pid_of "$old/main")

# ---------------------------------------------------------------- ours, beside it

began=$SECONDS
must apt install "${packages[@]}"
say "the packages with the cache installed beside $old: $((SECONDS - began)) s"
is "$old goes on running" "$(pid_of "$old/main")" "$running"
ok "$old: the data is the same" data_equal
is "libpq5 is that of the release" "$(version_of libpq5)" "$libpq"
is "dpkg finds no broken package" "$(inside dpkg --audit 2>&1)" ""
own=/usr/lib/postgresql/18/lib/libpq.so.5
# What needs libpq finds ours, and what is not PostgreSQL 18 does not.
users=$(inside sh -c 'find /usr/lib/postgresql/18 -type f -exec sh -c "objdump -p \"\$1\" 2>/dev/null | grep -q \"NEEDED *libpq.so.5\"" objdump {} \; -print')
ok "psql and the receiver of WAL use libpq" [ "$(grep -cE '/(psql|libpqwalreceiver.so)$' <<<"$users")" = 2 ]
# shellcheck disable=SC2086
is "files of 18 that find another libpq than their own" \
	"$(inside sh -c 'own=$1; shift; for f; do ldd $f | grep -q "libpq.so.5 => $own " || echo $f; done' ldd $own $users)" ""
is "psql of $old finds libpq5" "$(inside ldd "/usr/lib/postgresql/$old/bin/psql" | grep -c "$own")" 0
is "no package wants another libpq5" "$(inside sh -c 'for f in /debs/*.deb; do dpkg-deb -f $f Package Depends | grep -E "libpq5 *\(>= *18" || true; done')" ""
ok "a packaged extension that uses libpq depends on the client's package" grep -q '^libpq 5 postgresql-client-18' "$root/var/lib/dpkg/info/postgresql-client-18.shlibs"

must inside pg_createcluster 18 second -- --data-checksums
use_cluster 18 second
must cluster start
[ $booted = no ] || is "the service of the new cluster is active" "$(active postgresql@18-second)" active
db=postgres
ok "the server tells its version" grep -qF "(Debian $ours)" <<<"$(sql 'SELECT version()')"
ok "pg_pcache tells it, too" grep -qF "(Debian $ours)" <<<"$(inside_as postgres "$bin/pg_pcache" --version)"
sql "CREATE EXTENSION postgres_fdw; CREATE SERVER here FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '/run/postgresql', port '$(sql 'SHOW port')', dbname 'postgres');
	CREATE USER MAPPING FOR postgres SERVER here; CREATE TABLE t AS SELECT 42 AS n; CREATE FOREIGN TABLE f (n int) SERVER here OPTIONS (table_name 't')" >>"$log"
is "postgres_fdw connects" "$(sql 'SELECT n FROM f')" 42
db=shop
must cluster stop
[ $booted = no ] || is "the service of the cluster has stopped" "$(active postgresql@18-second)" inactive
must inside pg_dropcluster 18 second

# The release has no extension for 18.
must extension 18 clean
ok "an extension is compiled for 18" extension 18 install
ok "it is there" inside test -e /usr/lib/postgresql/18/lib/turned.so

# ---------------------------------------------------------------- from the release's version to ours

began=$SECONDS
must inside pg_upgradecluster -v 18 "$old" main
say "pg_upgradecluster $old main: $((SECONDS - began)) s"
use_cluster 18 main
ok "upgraded: the server tells its version" grep -qF "(Debian $ours)" <<<"$(sql 'SELECT version()')"
is "upgraded: it has the port of the old one" "$(sql 'SHOW port')" 5432
ok "upgraded: the data is the same" data_equal
answers upgraded
mkdir -p "$root/srv/pcache"
echo 'pcache /srv/pcache tmpfs size=600m,mode=0700,uid=postgres,gid=postgres,nodev,nosuid,noexec 0 0' >>"$root/etc/fstab"
must inside mount /srv/pcache
echo 'shared_buffers = 256MB' >"$root$conf/test.conf"
cache_on
warm_restart cache
must inside_as postgres psql -qX -d shop -c 'CREATE EXTENSION pg_pcache'
ok "pg_pcache check, by the data directory" inside_as postgres "$bin/pg_pcache" check -D "$pgdata"
is "cache: the view pg_pcache_pool" "$(sql 'SELECT mode, last_start, kept > 1000 FROM pg_pcache_pool')" 'planned_restart|warm|t'
answers cache

# ---------------------------------------------------------------- the unit, over a reboot

if [ $booted = yes ]; then
	must inside systemctl enable --now pg-pcache@18-main
	is "the unit is active" "$(active pg-pcache@18-main)" active
	is "the server did not notice" "$(active postgresql@18-main)" active
	fresh_log
	shut
	ok "shut down: the unit has saved an image" grep -q . <(find "$root/var/lib/postgresql/18" -maxdepth 1 -name 'main*' ! -name main -size +1M)
	must boot
	inside journalctl --no-pager -u pg-pcache@18-main >>"$log" 2>&1 || true
	is "booted: the tmpfs is a new one" "$(inside findmnt -n -o FSTYPE /srv/pcache)" tmpfs
	is "booted: the unit is active" "$(active pg-pcache@18-main)" active
	is "booted: the service of the cluster is active" "$(active postgresql@18-main)" active
	is_warm booted
	must inside systemctl disable --now pg-pcache@18-main
fi

# ---------------------------------------------------------------- Lintian

began=$SECONDS
ok "the programs are hardened" inside "$ROOT/tests/dist/hardened" /usr/lib/postgresql/18/bin/{postgres,pg_pcache,pg_ctl} /usr/lib/postgresql/18/lib/pg_pcache.so
lint() { inside sh -c 'lintian --allow-root --no-cfg --tag-display-limit 0 "$@" 2>&1 || true' lint "$@"; }
errors() { sed -n 's/^E: //p' | sed -E "s/\[[^]]*:[0-9]+\]//g; s/\b(18|$old)\b/N/g; s/N\.[0-9]+-[0-9a-z.+~]+//g" | sort -u; }
lint "/debs/$(basename "$root"/debs/*.changes)" >"$scratch/lint.ours"
mapfile -t stock_debs < <(cd "$root/" && find var/cache/apt/archives -name "postgresql*-$old*.deb" -printf '/%p\n' | sed 's,^//,/,')
lint "${stock_debs[@]}" >"$scratch/lint.stock"
cat "$scratch/lint.ours" >>"$log"
ok "lintian has looked at all" grep -q '^[EWI]: ' "$scratch/lint.ours"
is "lintian: errors that the packages of $old do not have" "$(comm -23 <(errors <"$scratch/lint.ours") <(errors <"$scratch/lint.stock"))" ''
say "lintian: $((SECONDS - began)) s"

# ---------------------------------------------------------------- back, and nothing is left

must cluster stop
ok "pg_pcache drop" inside_as postgres "$bin/pg_pcache" drop -D "$pgdata"
is "nothing is left on the tmpfs" "$(inside find /srv/pcache -type f | wc -l)" 0
must inside pg_dropcluster 18 main
use_cluster "$old" main
must inside pg_ctlcluster "$old" main start
[ $booted = no ] || is "back: the service of $old is active" "$(active "postgresql@$old-main")" active
ok "back: $old has its data" data_equal
answers back
running=$(pid_of "$old/main")
must extension 18 uninstall
must inside find /usr/include/postgresql/18 /usr/lib/postgresql/18 -type d -empty -delete
enabled_instances
must inside apt-get -q -y purge 'postgresql*-18*'
is "purged: nothing of version 18 is left" "$(inside sh -c 'ls -d /var/lib/postgresql/18 /usr/lib/postgresql/18 /usr/share/postgresql/18 /usr/include/postgresql/18 2>/dev/null' || true)" ''
is "purged: of the configuration, what the user has added to it is left" "$(inside sh -c 'cd /etc/postgresql/18 && find . -type f | sort | tr "\n" " "')" "./main/conf.d/cache.conf ./main/conf.d/test.conf "
is "purged: no file of ours is left in /etc, /usr and /var" "$(inside sh -c 'find /etc /usr /var -xdev \( -name "*pcache*" -o -name "*ndctl-setup*" \) ! -name "typcache*" ! -path "/var/cache/apt/*" ! -path "/var/log/*" ! -path "/etc/postgresql/*"')" ''
is "purged: $old goes on running" "$(pid_of "$old/main")" "$running"
ok "purged: $old has its data" data_equal
[ $booted = no ] || shut

echo "deb: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
