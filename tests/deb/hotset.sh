# shellcheck shell=bash disable=SC2154 # run sources it
#
# What run --hotset does: each package of pg_hotset is installed on the release's own
# server of that version.  A standby becomes as warm as its primary, a list is loaded,
# and in the end nothing of the package is left.

# on NAME QUERY: what this server of the version answers
on() {
	instance=$1 db=postgres
	sql "$2"
}
# becomes WHAT NAME QUERY: soon the server answers with t
becomes() {
	local end=$((SECONDS + 120)) answer
	until answer=$(on "$2" "$3") && [ "$answer" = t ] || [ $SECONDS -ge $end ]; do sleep 0.2; done
	is "$1" "$answer" t
}
in_buffers="SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('hot') AND relforknumber = 0"

for ver in $(versions_of pg-hotset); do
	package=postgresql-$ver-pg-hotset
	deb=/$(cd "$root/" && ls "debs/${package}"_*.deb)
	must apt install "postgresql-$ver"
	say "$package on PostgreSQL $(version_of "postgresql-$ver")"
	files >"$scratch/files.before"
	must inside dpkg -i "$deb"
	is "$package: dpkg finds no broken package" "$(inside dpkg --audit 2>&1)" ''
	is "$package: it depends on that server" "$(inside dpkg-deb -f "$deb" Depends | grep -owE "postgresql-$ver" | head -n 1)" "postgresql-$ver"
	lint=$(inside lintian --allow-root --no-cfg "$deb" 2>&1 || true)
	is "$package: errors that lintian finds" "$(grep '^E: ' <<<"$lint" || true)" ''
	ok "$package: the library is hardened" inside "$ROOT/tests/dist/hardened" "/usr/lib/postgresql/$ver/lib/pg_hotset.so"

	# a primary, and a standby of it
	must inside pg_createcluster "$ver" first -- --data-checksums
	must inside pg_createcluster "$ver" second
	for instance in first second; do
		echo 'autovacuum = off' >"$root/etc/postgresql/$ver/$instance/conf.d/test.conf"
	done
	printf '%s\n' "shared_preload_libraries = 'pg_hotset'" 'pg_hotset.interval = 1s' >>"$root/etc/postgresql/$ver/second/conf.d/test.conf"
	use_cluster "$ver" first
	must cluster start
	on first "CREATE EXTENSION pg_hotset; CREATE EXTENSION pg_prewarm; CREATE EXTENSION pg_buffercache" >>"$log"
	on first "CREATE TABLE hot AS SELECT i, repeat('x', 1000) AS filler FROM generate_series(1, 20000) i" >>"$log"
	on first 'VACUUM (FREEZE) hot' >>"$log"
	must cluster restart
	is "$package: the table is not in shared buffers" "$(on first "$in_buffers")" 0
	must inside rm -r "/var/lib/postgresql/$ver/second"
	must inside_as postgres "PGCLUSTER=$ver/first" pg_basebackup -R -c fast -D "/var/lib/postgresql/$ver/second"
	on first "SELECT count(pg_prewarm('hot')) FROM generate_series(1, 3)" >>"$log"
	hot=$(on first "$in_buffers")
	ok "$package: the primary has read the table" [ "$hot" -gt 2000 ]
	instance=second
	must cluster start
	becomes "$package: the standby becomes warm" second 'SELECT percent_warm > 99 AND problem IS NULL FROM pg_stat_hotset'
	is "$package: it has the table" "$(on second "$in_buffers")" "$hot"
	is "$package: a list, as rows" \
		"$(on first "SELECT count(*) FROM pg_hotset_pages(pg_hotset()) WHERE relfilenode = pg_relation_filenode('hot') AND relforknumber = 0")" "$hot"

	# The primary goes, and comes back as it would without the extension.
	instance=first
	must cluster stop -m immediate
	is "$package: the standby is promoted" "$(on second 'SELECT pg_promote()')" t
	is "$package: it still has the table" "$(on second "$in_buffers")" "$hot"
	instance=first
	must cluster start
	is "$package: the old primary is cold" "$(on first "$in_buffers")" 0
	ok "$package: a list is loaded" [ "$(on first "SELECT read FROM pg_hotset_load('/var/lib/postgresql/$ver/second/pg_hotset.list')")" -ge "$hot" ]
	is "$package: the old primary is warm" "$(on first "$in_buffers")" "$hot"

	# away
	on first 'DROP EXTENSION pg_hotset' >>"$log"
	instance=second
	must cluster stop
	must inside apt-get -q -y purge "$package"
	is "$package: purged, nothing is left" "$(diff "$scratch/files.before" <(files) | grep -v '/etc/postgresql\b' | grep '^[<>]' || true)" ''
	instance=first
	must cluster restart
	is "$package: purged, the server goes on" "$(on first 'SELECT count(*) FROM hot')" 20000
	must inside pg_dropcluster --stop "$ver" first
	must inside pg_dropcluster "$ver" second
done

echo "deb: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
