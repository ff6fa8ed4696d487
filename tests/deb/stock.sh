# shellcheck shell=bash disable=SC2154 # module.sh and setup.sh source it
#
# A table in a cluster of a stock server, and what pg_pcache and the views say.

# tells NAME STATUS PATTERN ARGUMENT...: the exit status of program, which the sourcing script
# has, and what it prints, which is in out
tells() {
	local name=$1 status=$2 pattern=$3 rc=0
	shift 3
	out=$(program "$@" 2>&1) || rc=$?
	printf '%s\n' "$out" >>"$log"
	is "$name: exit status" $rc "$status"
	# shellcheck disable=SC2016 # for the other shell
	ok "$name: the answer" bash -c 'echo "$2" && grep -qE "$1" <<<"$2"' tells "$pattern" "$out"
}
# make_table NAME: its rows are in "rows"
make_table() {
	sql "CREATE TABLE t AS SELECT i, repeat('x', 1000) AS filler FROM generate_series(1, 20000) i; CREATE EXTENSION pg_pcache" >>"$log"
	sql 'VACUUM (FREEZE) t' >>"$log"
	rows=$(all_rows)
	ok "$1: there is a table" grep -q '^20000 ' <<<"$rows"
}
# all_rows: of the table, in one number
all_rows() { sql "SELECT count(*) || ' ' || sum(hashtextextended(t::text, 0)) FROM t"; }
# last_start: how the last one was, and whether it has kept pages
last_start() { sql "SELECT last_start || ', ' || CASE WHEN kept > 2500 THEN 'the table is kept' ELSE kept || ' pages kept' END FROM pg_pcache_pool"; }
