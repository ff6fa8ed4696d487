# shellcheck shell=bash disable=SC2154 # run's variables
# sysbench's OLTP family while the server is killed or restarted.  After each start
# there are the same rows as in a copy of the files that was started without the pool,
# and as many of them as the statements of sysbench leave.
need sysbench

size=20000
tests=(oltp_read_write oltp_write_only oltp_update_index oltp_update_non_index oltp_read_write oltp_insert oltp_delete)

bench() { # bench TEST ARGUMENT...
	sysbench "$1" --db-driver=pgsql --pgsql-host="$sock" --pgsql-port="${port[a]}" --pgsql-user=postgres --pgsql-db=postgres \
		--tables=3 --table-size=$size --threads=4 --rand-type=pareto "${@:2}"
}

# rows PORT: of each table their number, the sum of the keys, and sums of all else
rows() {
	local t
	for t in 1 2 3; do
		"$bin/psql" -XAtq -p "$1" -c "SET enable_indexonlyscan = off; SET enable_bitmapscan = off;
			SELECT 'sbtest$t', count(*), sum(id), sum(k), sum(hashtextextended(c || pad, 0)) FROM sbtest$t" \
			-c "SET enable_seqscan = off; SELECT count(*), sum(k) FROM (SELECT k FROM sbtest$t ORDER BY k) s"
	done
}

# without: the same for a copy of the files, started without the pool
without() {
	rm -rf "$work/copy"
	cp -a "$work/a" "$work/copy"
	rm -f "$work/copy/postmaster.pid"
	"$bin/pg_ctl" -D "$work/copy" -l "$work/copy.log" -w -t 300 -o "-p ${port[b]} $without" start >>"$work/pg_ctl.log" 2>&1 || die "the copy does not start" "$(tail -n 5 "$work/copy.log")"
	rows "${port[b]}"
	"$bin/pg_ctl" -D "$work/copy" -m immediate -w stop >/dev/null
}

cluster a
bench oltp_read_write prepare >"$work/prepare.log"
end=$((SECONDS + DURATION))
for ((i = 0; i < ${#tests[@]} || SECONDS < end; i++)); do
	t=${tests[i % ${#tests[@]}]}
	bench "$t" --time=3600 --report-interval=1 --rand-seed=$((SEED + i)) run >"$work/bench.log" 2>&1 &
	jobs=($!)
	sleep "$((2 + RANDOM % 3)).$((RANDOM % 10))"
	works "$t works" grep -E 'tps: ([1-9]|0\.0*[1-9])' "$work/bench.log"
	fault a
	wait "${jobs[0]}" || true
	jobs=()
	without >"$work/expected"
	start a "$t, $how"
	rows "${port[a]}" >"$work/got"
	is "$t, $how: all rows as without the pool" "$(cat "$work/got")" "$(cat "$work/expected")"
	if [ $i -lt 5 ]; then
		is "$t, $how: as many rows as sysbench leaves" \
			"$(sed -nE 's/^sbtest[0-9]\|([0-9]+\|[0-9]+)\|.*/\1/p' "$work/got" | sort -u)" "$size|$((size * (size + 1) / 2))"
	fi
	sound a "$t, $how"
done
