# shellcheck shell=bash disable=SC2016,SC2034,SC2154 # run sources it
#
# What run --module does: each package of the library is installed beside the release's own
# server of that version, which keeps all of its files.  Three lines of configuration, and
# the second restart is warm.  It is once more after an upgrade of the server to the next
# minor release, if the archive of security updates has one.  In the end nothing of the
# package is left but the pool, which is the administrator's.

pool=/srv/pcache
db=postgres
. "$ROOT/tests/deb/stock.sh"

# owned_by PACKAGE: its files, without directories
owned_by() { inside sh -c 'dpkg -L "$1" | while IFS= read -r f; do [ -d "$f" ] || echo "$f"; done | sort' owned "$1"; }
# added: files that were not there before, but for configuration, and for other packages, because
# apt keeps a library that another package recommends
added() {
	comm -13 "$scratch/files.before" "$scratch/files.purged" | grep -v '^/etc/postgresql/' >"$scratch/files.added" || true
	inside sh -c 'while IFS= read -r f; do dpkg -S "$f" >/dev/null 2>&1 || echo "$f"; done <"$1"' added "$scratch/files.added"
}
library_on() {
	cat >"$root$conf/pcache.conf" <<-CONF
		shared_preload_libraries = 'pg_pcache'
		pcache.mode = planned_restart
		pcache.directory = '$pool'
	CONF
}
# warm WHEN: was the last start, and nothing has been read since?
warm() {
	grep 'persistent cache' "$root$cluster_log" || true
	is "$1" "$(last_start)" "warm, the table is kept"
	sql "SELECT pg_stat_reset_single_table_counters('t'::regclass)" >>"$log"
	is "$1: the data is the same" "$(all_rows)" "$rows"
	# A session has told its counters once it is gone.
	is "$1: no block of the table was read from its file" "$(sql "SELECT heap_blks_read || ' ' || (heap_blks_hit > 2500) FROM pg_statio_user_tables WHERE relname = 't'")" "0 true"
}
program() { inside_as postgres "$bin/pg_pcache" -D "$pgdata" "$@"; }
# beside_another_version: a release of Debian has one version of PostgreSQL, so that of the
# other package is this one, with a program that tells its arguments
beside_another_version() {
	local older=$((ver - 1)) tree=$scratch/other
	local other=postgresql-$older-pcache
	must inside dpkg-deb -R "$deb" "$tree"
	rm -r "$tree/usr/lib/postgresql/$ver/lib" "$tree/usr/share/postgresql/$ver/extension" "$tree/usr/share/doc" "$tree/DEBIAN/md5sums"
	mv "$tree/usr/lib/postgresql/$ver" "$tree/usr/lib/postgresql/$older"
	mv "$tree/usr/share/postgresql/$ver" "$tree/usr/share/postgresql/$older"
	mv "$tree/usr/share/postgresql-$ver-pcache" "$tree/usr/share/postgresql-$older-pcache"
	printf '#!/bin/sh\necho "version %s:" "$@"\n' "$older" >"$tree/usr/lib/postgresql/$older/bin/pg_pcache"
	sed -i "s/$package/$other/g; /^Depends:/d; /^Conflicts:/d" "$tree/DEBIAN/control"
	sed -i "s/$package/$other/g; s,/postgresql/$ver/,/postgresql/$older/,g; s/ ${ver}0/ ${older}0/" "$tree"/DEBIAN/p*
	must inside dpkg-deb -b "$tree" "$tree.deb"
	must inside dpkg -i "$tree.deb"
	is "$package: beside another, both are installed" "$(version_of "$package")" "$(version_of "$other")"
	is "$package: beside another, the link is the newer one's" "$(inside readlink /etc/alternatives/pg_pcache)" "/usr/share/$package/pg_pcache"
	is "$package: beside another, by --cluster" "$(inside pg_pcache --cluster "$older/main" check)" "version $older: --cluster $older/main check"
	is "$package: beside another, the newest" "$(inside_as postgres PG_CLUSTER_CONF_ROOT=/nowhere pg_pcache --version)" "$(inside_as postgres "$bin/pg_pcache" --version)"
	must inside dpkg --purge "$package"
	is "$package: the other one alone, by its link" "$(inside pg_pcache check)" "version $older: check"
	ok "$package: the other one alone, its page" inside man -w pg_pcache
	must apt install "$deb"
	is "$package: installed again, the link" "$(inside readlink /etc/alternatives/pg_pcache)" "/usr/share/$package/pg_pcache"
	must inside dpkg --purge "$other"
	is "$package: without the other, the link" "$(inside readlink /etc/alternatives/pg_pcache)" "/usr/share/$package/pg_pcache"
	rm -r "$tree" "$tree.deb"
}
# running: the minor release that answers
running() { sql "SELECT current_setting('server_version')"; }

must mkdir "$root$pool"
must mount -t tmpfs -o nodev,nosuid,noexec,size=600m,mode=0700 pool "$root$pool"
versions=$(versions_of pcache)
[ -n "$versions" ] || must false "there is no package"

for ver in $versions; do
	package=postgresql-$ver-pcache
	deb=/$(cd "$root/" && ls "debs/${package}"_*.deb)
	use_cluster "$ver" main
	must apt install "postgresql-$ver"
	must apt --purge autoremove
	stock=$(version_of "postgresql-$ver")
	must inside chown postgres: "$pool"
	say "$package on PostgreSQL $stock"
	say "it depends on $(inside dpkg-deb -f "$deb" Depends)"

	# beside the server
	files >"$scratch/files.before"
	must apt install "$deb"
	is "$package: the server stays" "$(version_of "postgresql-$ver")" "$stock"
	is "$package: dpkg finds no broken package" "$(inside dpkg --audit 2>&1)" ''
	is "$package: its files" "$(owned_by "$package" | grep -vE "^/usr/share/doc/$package/(docs|src|packaging|[A-Z]+\.md)" | tr '\n' ' ')" "$(printf '%s ' \
		"/usr/lib/postgresql/$ver/bin/pg_pcache" "/usr/lib/postgresql/$ver/lib/pg_pcache.so" \
		"/usr/share/doc/$package/"{changelog.gz,copyright,reference.html} "/usr/share/postgresql-$ver-pcache/pg_pcache" \
		"/usr/share/postgresql/$ver/extension/pg_pcache"{--1.0--1.1.sql,--1.1.sql,.control} "/usr/share/postgresql/$ver/man/man1/pg_pcache.1.gz")"
	ok "$package: the guides are there, and what they link to" inside sh -c 'cd "/usr/share/doc/$1/docs" &&
		head -c 1 operations.md ../README.md ../CHANGELOG.md benchmarks.md monitoring/rules.yml ../src/backend/storage/buffer/pmem/README ../packaging/systemd/pg-pcache@.service >/dev/null' guides "$package"
	is "$package: files of it that were there before" "$(owned_by "$package" | comm -12 - "$scratch/files.before")" ''
	is "$package: files of the server that differ from its packages" "$(inside dpkg -V "postgresql-$ver" "postgresql-client-$ver" 2>&1 | grep -v ' /usr/share/\(doc\|man\|locale\)/' || true)" ''
	for lib in libpmem1 libndctl6 libxxhash0; do
		ok "$package: it depends on $lib" bash -c 'grep -qE "(^|, )$1( |,|$)" <<<"$2"' depends $lib "$(inside dpkg-deb -f "$deb" Depends)"
	done
	is "$package: it depends on that server" "$(inside dpkg-deb -f "$deb" Depends | grep -owE "postgresql-$ver" | head -n 1)" "postgresql-$ver"
	minor=$(inside "$bin/postgres" --version | sed -E 's/^[^0-9]*([0-9]+\.[0-9]+).*/\1/')
	ok "$package: of at least the minor release that it was built with" grep -qE "postgresql-$ver \(>[>=] ${minor/./\\.}\)" <<<"$(inside dpkg-deb -f "$deb" Depends)"
	is "$package: it conflicts with the patched server's tools" "$(inside dpkg-deb -f "$deb" Conflicts)" "postgresql-$ver-pcache-tools"
	lint=$(inside lintian --allow-root --no-cfg "$deb" 2>&1 || true)
	is "$package: errors that lintian finds" "$(grep '^E: ' <<<"$lint" || true)" ''
	printf '%s\n' "$lint" | sed 's/^/    /'
	ok "$package: library and program are hardened" inside "$ROOT/tests/dist/hardened" "/usr/lib/postgresql/$ver/lib/pg_pcache.so" "$bin/pg_pcache"
	is "$package: libraries that are missing" "$(inside ldd "/usr/lib/postgresql/$ver/lib/pg_pcache.so" "$bin/pg_pcache" | grep 'not found' || true)" ''

	# the program in PATH, and its page
	ok "$package: pg_pcache in PATH" inside_as postgres PG_CLUSTER_CONF_ROOT=/nowhere sh -c '[ "$(pg_pcache --version)" = "$("$1" --version)" ]' path "$bin/pg_pcache"
	ok "$package: man pg_pcache" bash -c 'grep -qE "^PG_PCACHE\(1\)" <<<"$1" && grep -q "next start: WARM" <<<"$1"' man "$(inside MANPAGER=cat MANWIDTH=80 man -E UTF-8 pg_pcache 2>&1)"
	beside_another_version

	# a server without the library, and then with it
	must inside pg_createcluster "$ver" main -- --data-checksums
	printf '%s\n' 'autovacuum = off' 'shared_buffers = 128MB' >"$root$conf/test.conf"
	must cluster start
	make_table "$package"
	library_on
	tells "$package: check, before the first restart" 2 'COLD' check
	must cluster restart
	is "$package: the data is the same with the library" "$(all_rows)" "$rows"
	is "$package: the pool is in use" "$(sql "SELECT mode || ' ' || (pool LIKE '$pool/%') FROM pg_pcache_pool")" "planned_restart true"
	tells "$package: check, while the server runs" 0 'WARM' check
	must cluster stop
	tells "$package: verify" 0 'WARM' verify
	tells "$package: verify --pages" 0 'WARM' verify --pages
	fresh_log
	must cluster start
	warm "$package: restarted"
	is "$package: pg_pcache_next_start" "$(sql "SELECT pg_pcache_next_start()::text LIKE '%warm%'")" t
	is "$package: relations" "$(sql "SELECT count(*) > 0 FROM pg_pcache_relations")" t
	ok "$package: the server has warned of nothing" not grep -E 'WARNING|ERROR|FATAL|PANIC' "$root$cluster_log"

	# away: the pool is the administrator's, and so is the configuration
	must inside apt-get -q -y purge "$package"
	must apt --purge autoremove
	files >"$scratch/files.purged"
	is "$package: purged, nothing is left" "$(added)" ''
	is "$package: purged, nothing else is gone" "$(comm -23 "$scratch/files.before" "$scratch/files.purged")" ''
	ok "$package: purged, the pool stays where the administrator has put it" test -n "$(find "$root$pool" -type f)"
	sed -i '/^shared_preload_libraries/d' "$root$conf/pcache.conf"
	must cluster restart
	is "$package: purged, the server goes on, and its other settings mean nothing" "$(all_rows)" "$rows"

	# and once more; what a server without the library has changed would not be in the pool
	must apt install "$deb"
	library_on
	tells "$package: again, check" 2 'COLD' check
	fresh_log
	must cluster restart
	is "$package: again, it is cold after a server without the library" "$(sql 'SELECT last_start FROM pg_pcache_pool')" cold
	is "$package: again, the data is the same" "$(all_rows)" "$rows"
	fresh_log
	must cluster restart
	warm "$package: again"

	# the next minor release
	newer=''
	if [ -s "$root/security.list" ]; then
		cp "$root/security.list" "$root/etc/apt/sources.list.d/security.list"
		if inside apt-get -q update >>"$log" 2>&1; then
			newer=$(inside apt-cache policy "postgresql-$ver" | sed -n 's/^ *Candidate: //p')
			[ "$newer" != "$stock" ] || newer=''
		fi
	fi
	if [ -n "$newer" ]; then
		say "$package: the server is upgraded from $stock to $newer"
		must apt upgrade
		is "$package: upgrade, the server" "$(version_of "postgresql-$ver")" "$newer"
		is "$package: upgrade, the package stays" "$(version_of "$package")" "$(inside dpkg-deb -f "$deb" Version)"
		tells "$package: upgrade, check" 0 'WARM' check
		fresh_log
		must cluster restart
		is "$package: upgrade, the server that runs" "$(running)" "${newer%%-*} (Debian $newer)"
		warm "$package: upgrade"
	else
		echo "$package: the archive has one minor release of version $ver, $stock, so no upgrade was tried"
	fi
	if [ -e "$root/etc/apt/sources.list.d/security.list" ]; then
		rm "$root/etc/apt/sources.list.d/security.list"
		must inside apt-get -q update
	fi

	# away for good, with the server down
	must cluster stop
	tells "$package: drop" 0 '' drop
	is "$package: drop, the pool is gone" "$(find "$root$pool" -type f)" ''
	must inside apt-get -q -y purge "$package"
	must inside pg_dropcluster "$ver" main
	is "$package: no file of it is left" "$(inside sh -c 'find /etc /usr /var/lib -xdev -name "*pcache*" ! -name typcache.bc ! -path "/etc/postgresql/*"')" ''
	ok "$package: the pool's directory stays" test -d "$root$pool"
done

echo "deb: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
