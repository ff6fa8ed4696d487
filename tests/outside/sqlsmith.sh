# shellcheck shell=bash disable=SC2154 # run's variables
# sqlsmith's random statements over kept pages: no process of the server crashes that
# does not crash in stock PostgreSQL, and amcheck finds nothing after each start.
need sqlsmith
pg=$BUILD/postgres
need_pg_regress "$pg"

# populate BIN PORT: what PostgreSQL's regression tests create first, and an
# unprivileged user who may change all of it, and look at the cache
populate() {
	"$1/createdb" -p "$2" regression
	"$pg/src/test/regress/pg_regress" --use-existing --inputdir="$pg/src/test/regress" --outputdir="$work" --bindir="$1" \
		--dlpath="$pg/src/test/regress" --host="$sock" --port="$2" --user=postgres --dbname=regression \
		test_setup copy create_misc create_index create_view gin gist spgist brin hash_index >"$work/regress.log" 2>&1 || true
	"$1/psql" -XAtq -v ON_ERROR_STOP=1 -p "$2" -d regression -c "CREATE ROLE smith LOGIN; GRANT pg_read_all_data, pg_write_all_data, pg_monitor TO smith;
		ALTER ROLE smith SET statement_timeout = '2s'; ALTER ROLE smith SET temp_file_limit = '200MB';
		ALTER ROLE smith SET log_min_error_statement = panic"
}

# stock_crashes: do the statements since the last start crash unpatched PostgreSQL, too?
stock_crashes() {
	local stock=$BUILD/pgsql-vanilla/bin
	[ -x "$stock/postgres" ] || return 1
	rm -rf "$work/stock"
	run_initdb "$stock" "$work/stock.initdb" -U postgres --no-locale -E UTF8 -D "$work/stock"
	grep -vE 'pcache|persistent_cache' "$work/common.conf" >>"$work/stock/postgresql.conf"
	"$stock/pg_ctl" -D "$work/stock" -l "$work/stock.log" -w -o "-p ${port[b]}" start >>"$work/pg_ctl.log" 2>&1 || return 1
	populate "$stock" "${port[b]}"
	"$stock/psql" -Xq -p "${port[b]}" -d regression -U smith -f "$work/statements" >/dev/null 2>&1 || true
	"$stock/pg_ctl" -D "$work/stock" -m fast -w stop >>"$work/pg_ctl.log" 2>&1 || true
	grep -aq 'terminated by signal' "$work/stock.log"
}

sent() { [ "$(grep -c ';$' "$work/statements")" -gt 50 ]; }

cluster a
populate "$bin" "${port[a]}"
sql a 'CREATE EXTENSION pg_pcache; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO smith' -d regression
is "the regression tests have left tables" "$(sql a "SELECT count(*) > 20 FROM pg_class WHERE relkind = 'r' AND oid >= 16384" -d regression)" t

every=60
[ "$DURATION" -ge 240 ] || every=$((DURATION / 4 + 1))
for ((i = 1; (i - 1) * every < DURATION; i++)); do
	: >"$work/statements"
	# after a lost connection, sqlsmith connects again
	if [ ${#jobs[@]} -eq 0 ] || ! kill -0 "${jobs[0]}" 2>/dev/null; then
		sqlsmith --target="host=$sock port=${port[a]} dbname=regression user=smith" --seed=$((SEED + i)) --dump-all-queries \
			>>"$work/statements" 2>>"$work/sqlsmith.log" &
		jobs=($!)
	fi
	sleep $every
	works "start $i: sqlsmith sends statements" sent
	fault a
	if grep -aq 'terminated by signal' "$work/a.log"; then
		is "start $i: what has crashed crashes in stock PostgreSQL, too" "$(stock_crashes && echo yes)" yes
		mv "$work/a.log" "$work/a.log.$i"
	fi
	start a "start $i, $how"
	sound a "start $i, $how"
done
