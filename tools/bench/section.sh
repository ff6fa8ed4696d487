#!/bin/bash
# Shared by tools/bench/run and tools/bench/report, which source common.sh first:
# the table of sections, and what the files in tools/bench/sections use.
#
# Such a file has two functions.  measure SECTION... writes one line for each
# single measurement to build/bench/NAME.csv, and print_report SECTION reads
# nothing but the CSV files, so that a report can be made of them at any time.

# section, its file in tools/bench/sections, the chapter's title
sections_table='
limits           limits          Limits of the machine
failover         failover        The first seconds after a failover
hotset           hotset          What a standby pays for pg_hotset
hotset-idle      hotset          What pg_hotset costs idle servers
first-start      first-start     The first start after pg_upgrade
lookups          lookups         Looking up pages
instructions     instructions    Instructions per transaction
wal              wal             WAL in memory
image            image           Images of the pool on disk
'
all_sections() { awk 'NF {print $1}' <<<"$sections_table"; }
file_of() { awk -v s="$1" '$1 == s {print $2}' <<<"$sections_table"; }
title_of() { awk -v s="$1" '$1 == s {$1 = $2 = ""; sub(/^ +/, ""); print}' <<<"$sections_table"; }
load_section() { # FILE
	local f
	# what one defines would be there for the next one
	while read -r f; do
		[[ " ${shared_functions[*]} " != *" $f "* ]] || die "tools/bench/sections/$1 defines $f(), which all sections use"
	done < <(sed -nE 's/^([a-z_0-9]+)\(\).*/\1/p' "$ROOT/tools/bench/sections/$1")
	# shellcheck disable=SC1090 # one of the files in tools/bench/sections
	. "$ROOT/tools/bench/sections/$1"
}

current='' # the section that is measured
csv=$BUILD/bench work=$BUILD/bench/work
# shellcheck disable=SC2034 # for the sections
bin=$BUILD/pgsql/bin vanilla=$BUILD/pgsql-vanilla/bin

# ------------------------------------------------------------- the extent of a run

is_on() { case ${1:-} in '' | 0 | no) return 1 ;; esac }
extent=default
! is_on "${LONG:-}" || extent=long
! is_on "${QUICK:-}" || extent=quick

# by_extent VARIABLE QUICK DEFAULT LONG: prints the variable, or the value for this run
by_extent() {
	if [ -n "${!1:-}" ]; then
		printf '%s\n' "${!1}"
		return
	fi
	case $extent in
	quick) printf '%s\n' "$2" ;;
	default) printf '%s\n' "$3" ;;
	long) printf '%s\n' "$4" ;;
	esac
}

# whole_numbers VARIABLE VALUE..., decimals VARIABLE VALUE...: or die
whole_numbers() {
	local v name=$1
	shift
	for v; do [[ $v =~ ^[1-9][0-9]*$ ]] || die "$name: \"$v\" is not a positive whole number"; done
}
decimals() {
	local v name=$1
	shift
	for v; do
		[[ $v =~ ^([0-9]+|[0-9]*\.[0-9]+)$ && $v =~ [1-9] ]] || die "$name: \"$v\" is not a positive number" "for example $name=\"1 2.9\""
	done
}
one_of() { # VARIABLE "WORD..." VALUE...
	local v name=$1 words=$2
	shift 2
	for v; do case " $words " in *" $v "*) ;; *) die "$name: \"$v\" is unknown" "it takes these words: $words" ;; esac done
}

mb_of() { awk -v g="$1" 'BEGIN {printf "%d\n", int(g * 1024 / 16 + 0.5) * 16}'; } # GB
pool_mb() { echo $(($1 + $1 / 100 + 16)); } # MEGABYTES of shared_buffers

# fits LABEL MEGABYTES DISK POOLS: is there so much memory, disk space in build/bench,
# and room where the pools go?  Says so, and notes it for the report, if not.
fits() {
	local free disk room why place=${POOL_DIR:-/dev/shm}
	free=$(free_memory)
	disk=$(df -Pm "$work" | awk 'NR == 2 {print $4}')
	room=$(df -Pm "$place" | awk 'NR == 2 {print $4}')
	if [ "$free" -lt "$2" ]; then
		why="it needs $2 MB of memory and $free MB are free"
	elif [ "$disk" -lt "$3" ]; then
		why="it needs $3 MB of disk space and $disk MB are left in ${work#"$ROOT"/}"
	elif [ "$room" -lt "$4" ]; then
		why="its pools need $4 MB and $room MB are left in $place"
	else
		return 0
	fi
	leave_out "$1" "$why"
	return 1
}
leave_out() { # LABEL WHY
	warn "$current: $1 is left out, because $2"
	[ -s "$csv/left-out.csv" ] || csv_begin left-out section,what,why
	csv_line left-out "$current" "$1" "$2"
}

# huge_pages_fit on|off LABEL MEGABYTES: are so many huge pages free, if they are to be
# used?  Nobody else can have their memory, so they count beside that of fits.
huge_pages_fit() {
	local free
	[ "$1" = on ] || return 0
	free=$(awk '/^HugePages_Free:/ {n = $2} /^Hugepagesize:/ {kb = $2} END {print int(n * kb / 1024)}' /proc/meminfo)
	[ "$free" -lt "$3" ] || return 0
	leave_out "$2 with huge pages" "it needs $3 MB of huge pages and $free MB are free (vm.nr_hugepages)"
	return 1
}
print_left_out() { # SECTION...
	[ ! -s "$csv/left-out.csv" ] || awk -F , -v sections=" $* " '
		NR > 1 && index(sections, " " $1 " ") {print $1 ": " $2 " is left out, because " $3}' "$csv/left-out.csv"
}

# forget_section SECTION: what the last run has noted about it
forget_section() {
	local list
	for list in sections left-out; do
		if [ -s "$csv/$list.csv" ]; then
			awk -F , -v s="$1" 'NR == 1 || $1 != s' "$csv/$list.csv" >"$csv/$list.new"
			mv "$csv/$list.new" "$csv/$list.csv"
		fi
	done
	rm -f "$csv/$1.settings"
}

# ------------------------------------------------------------------- CSV files

csv_begin() { printf '%s\n' "$2" >"$csv/$1.csv"; } # NAME HEADER
csv_line() { # NAME FIELD...
	local IFS=, name=$1
	shift
	printf '%s\n' "$*" >>"$csv/$name.csv"
}

# column NAME COLUMN [COLUMN=VALUE]...: the values of a column in the lines for which all that is true
column() {
	awk -F , -v want="$2" -v conditions="${*:3}" '
		NR == 1 { for (i = 1; i <= NF; i++) c[$i] = i; n = split(conditions, list, " "); next }
		{
			for (i = 1; i <= n; i++) { split(list[i], pair, "="); if ($c[pair[1]] != pair[2]) next }
			print $c[want]
		}' "$csv/$1.csv"
}
# the different values, in the order in which they come
distinct() { column "$@" | awk '!seen[$0]++'; }
# p99: reads lines, and prints it of the second column, and the number of lines
p99() { awk '{print $2}' | sort -n | awk '{v[NR] = $1} END {print v[int(NR * 0.99 + 0.999999)], NR}'; }
median() { column "$@" | quantiles | awk '{print $2}'; }
# ratios NAME COLUMN VARIABLE A B [COLUMN=VALUE]...: of the column where VARIABLE
# is A to the one where it is B, round by round
ratios() {
	local name=$1 want=$2 by=$3 a=$4 b=$5
	shift 5
	paste -d , <(column "$name" round "$@") <(column "$name" "$by" "$@") <(column "$name" "$want" "$@") |
		awk -F , -v a="$a" -v b="$b" '
			$2 == a { x[$1] = $3 } $2 == b { y[$1] = $3 }
			END { for (r in x) if (y[r] > 0) print x[r] / y[r] }'
}

# limit QUANTITY [EXPRESSION]: the median that section limits has measured, or the
# expression of awk, in which it is v; nothing if it was not measured
limit() {
	[ -s "$csv/limits.csv" ] || return 0
	column limits value "quantity=$1" | quantiles | awk "\$1 > 0 {v = \$2; print ${2:-v}}"
}

# print_line LABEL FORMAT: median and range of the numbers on standard input
print_line() {
	local n m min max
	read -r n m _ _ min max _ < <(quantiles)
	# shellcheck disable=SC2059 # the format is an argument
	[ "$n" -eq 0 ] || printf "  %-52s $2   ($2 .. $2, %d times)\n" "$1" "$m" "$min" "$max" "$n"
}
# print_limit LABEL FORMAT QUANTITY [EXPRESSION]: the physical limit that belongs to the lines above
print_limit() {
	local v
	v=$(limit "${@:3}")
	# shellcheck disable=SC2059 # the format is an argument
	[ -z "$v" ] || printf "  %-52s $2\n" "limit: $1" "$v"
}

# print_section SECTION: its title line and its tables
print_section() {
	[ -e "$csv/$1.settings" ] || return 0
	printf '\n== %s: %s\n' "$1" "$(cat "$csv/$1.settings")"
	print_report "$1"
}

# settings TEXT: what the section was told, for its title line
settings() { printf '%s\n' "$*" >"$csv/$current.settings"; }

# ------------------------------------------------------------ servers and their load

sql() { # PORT COMMAND
	"$bin/psql" -XAtq -v ON_ERROR_STOP=1 -h "$SOCK" -p "$1" -U postgres -d bench -c "$2"
}
make_cluster() { # BIN DATADIR
	run_initdb "$1" "$work/initdb.log" -U postgres --no-locale -E UTF8 -D "$2"
	conf "$2"
}

# The pgbench database that fits into shared_buffers of so many MB, with room for
# the catalogs and for what an update adds.
scale_for() { echo $((($1 * 2 + 38) / 39)); }

# pgbench_cluster BIN DATADIR MEGABYTES SCALE: a stopped cluster with that database
pgbench_cluster() {
	say "building a pgbench database, scale $4"
	make_cluster "$1" "$2"
	echo "shared_buffers = ${3}MB" >>"$2/postgresql.conf"
	# Without WAL, the pages would have no LSN, and mode always would keep none of them.
	launch load "$1" "$2" "$work/load.log" -c fsync=off -c full_page_writes=off -c wal_level=replica -c maintenance_work_mem=256MB -c port=5400
	"$bin/createdb" -h "$SOCK" -p 5400 -U postgres bench
	foreground "$bin/pgbench" -i -q -I dtgvp -s "$4" -h "$SOCK" -p 5400 -U postgres bench >"$work/load.out" 2>&1 || {
		tail -n 5 "$work/load.out" >&2
		die "pgbench -i failed"
	}
	sql 5400 'create extension pg_prewarm'
	stop load
	sync -f "$2"
}

prewarm() { # PORT
	foreground sql "$1" "select sum(pg_prewarm(oid)) from pg_class
		where relnamespace = 'public'::regnamespace and relkind in ('r', 'i')" >/dev/null
}

# pgbench PORT SECONDS OPTION...: its output goes to $work/pgbench.out
pgbench() {
	local port=$1 seconds=$2
	shift 2
	foreground "$bin/pgbench" -n -M prepared -c "$clients" -j "$clients" -T "$seconds" -h "$SOCK" -p "$port" -U postgres "$@" bench \
		>"$work/pgbench.out" 2>&1 || {
		tail -n 5 "$work/pgbench.out" >&2
		die "pgbench failed"
	}
}

# logged_load PORT SECONDS OPTION...: pgbench, with a log for what follows
logged_load() {
	local port=$1 seconds=$2
	shift 2
	rm -f "$work"/load.[0-9]*
	load_began=$(now_ms)
	pgbench "$port" "$seconds" -l --log-prefix="$work/load" "$@"
}
# Transactions in its first second, with pgbench's start; and the p99 latency in us
first_second() { per_tenth "$load_began" "$work"/load.[0-9]* | awk 'NR <= 10 {n += $2} END {print n + 0}'; }
load_p99() { cat "$work"/load.[0-9]* | awk '{print 0, $3}' | p99 | awk '{print $1}'; }
load_tps() { sed -nE 's/^tps = ([0-9.]+).*/\1/p' "$work/pgbench.out"; }

# expect_warm LOG: a measurement of a cold start would be one of something else
expect_warm() {
	sed -nE 's/.*persistent cache: kept ([0-9]+) of ([0-9]+) saved pages.*/\1 \2/p' "$1" | awk '{warm = $1 * 2 > $2} END {exit !warm}' ||
		die "a restart was not warm: $(grep -m 1 'persistent cache:' "$1" || echo 'the log does not mention the cache')" "see ${1#"$ROOT"/}"
}

clients=${CLIENTS:-$(nproc)}
whole_numbers CLIENTS "$clients"

# --------------------------------------------- servers that run at the same time

# Count instructions too where the processor lets us.
perf_event=${PERF_EVENT:-instructions:u} use_perf=0
find_perf() {
	if command -v perf >/dev/null && perf stat -x, -e "$perf_event" true 2>&1 >/dev/null | grep -qE '^[0-9.]+,'; then
		use_perf=1
	fi
}

# library_server: a copy of the unpatched server that has the library; prints where its programs are
library_bin=''
library_server() {
	module_server "$vanilla/pg_config"
	rm -rf "$work/library-server"
	copy_server "$vanilla/pg_config" "$work/library-server"
	printf '%s\n' "$bin"
}

# start_copy NAME MODE PORT MEGABYTES OPTION...: start a server on $work/NAME.  MODE is
# "unpatched", a mode of the cache, or "library" for an unpatched server with the library.
# The latter two have a new pool of that size, in $HUGETLBFS if NAME ends in hugetlbfs.
# Sets pool_of_copy.
start_copy() {
	local name=$1 mode=$2 port=$3 mb=$4 programs=$bin
	shift 4
	set -- -c port="$port" "$@"
	pool_of_copy=''
	case $mode in
	unpatched) programs=$vanilla ;;
	off) ;;
	*)
		case $name in
		*hugetlbfs) pool_of_copy=$(POOL_DIR=${HUGETLBFS:?} pool_directory pcache-bench "$(pool_mb "$mb")") ;;
		*) pool_of_copy=$(pool_directory pcache-bench "$(pool_mb "$mb")") ;;
		esac
		scratch "$pool_of_copy" "$work"
		if [ "$mode" = library ]; then
			[ -n "$library_bin" ] || library_bin=$(library_server)
			programs=$library_bin mode=planned_restart
			set -- "$@" -c shared_preload_libraries=pg_pcache
		fi
		set -- "$@" -c pcache.mode="$mode" -c pcache.directory="$pool_of_copy"
		;;
	esac
	launch "$name" "$programs" "$work/$name" "$work/$name.log" "$@"
	[ -z "$pool_of_copy" ] || await_pool "$work/$name.log"
	prewarm "$port"
}

# order_of_round ROUND SERVER...: prints the servers, one a line.  Each second round
# starts with another one, and those in between go backwards: A B C D, D C B A,
# B C D A, A D C B, ...
order_of_round() {
	local round=$1 n=$(($# - 1)) i servers
	shift
	servers=("$@")
	for ((i = 0; i < n; i++)); do printf '%s\n' "${servers[(i + (round - 1) / 2) % n]}"; done |
		if ((round % 2)); then cat; else tac; fi
}

# cost_of PORT NAME SECONDS OPTION...: runs pgbench, and prints TPS, us of the
# backends' CPU time and perf's count per transaction
cost_of() {
	local port=$1 name=$2 cpu0 cpu1 n tps pp='' count=0
	shift 2
	children_of "$name" >"$work/children"
	cpu0=$(ended_cpu "$name")
	if [ $use_perf -eq 1 ]; then
		perf stat -x, -o "$work/perf.out" -e "$perf_event" -p "${SERVER[$name]}" >/dev/null 2>&1 &
		pp=$!
		sleep 0.2
	fi
	pgbench "$port" "$@"
	# A backend counts when the postmaster has seen its end.
	while [ -n "$(comm -13 "$work/children" <(children_of "$name"))" ]; do sleep 0.01; done
	if [ -n "$pp" ]; then
		kill -INT "$pp" || true
		wait "$pp" || true
		count=$(awk -F , '$1 ~ /^[0-9.]+$/ {s += $1} END {printf "%.0f\n", s}' "$work/perf.out")
	fi
	cpu1=$(ended_cpu "$name")
	tps=$(sed -nE 's/^tps = ([0-9.]+).*/\1/p' "$work/pgbench.out")
	n=$(sed -nE 's/^number of transactions actually processed: ([0-9]+).*/\1/p' "$work/pgbench.out")
	awk -v tps="$tps" -v n="$n" -v ticks=$((cpu1 - cpu0)) -v hz="$(getconf CLK_TCK)" -v count="$count" \
		'BEGIN {print tps, ticks / hz * 1e6 / n, count / n}'
}

# -------------------------------------------------- queries that look up many pages

# lookup_tables PORT ROWS: makes "spread", in which the rows with the same k are in
# pages far apart, and "probe", which has 20 times 10000 ids of it, at random
lookup_tables() {
	foreground sql "$1" "
		create table spread as select i as id, (hashint4(i)::bigint + 2147483648) % ($2 / 100) as k, repeat('x', 84) as filler
			from generate_series(1, $2) i;
		create table probe as select part, (hashint4(part * 10000 + i)::bigint + 2147483648) % $2 + 1 as id
			from generate_series(1, 20) part, generate_series(1, 10000) i;
		alter table probe alter id type int;
		create unique index on spread (id);
		create index on spread (k);
		create index on probe (part)"
	sql "$1" 'vacuum (freeze, analyze)'
}

lookup_rows() { # WORKLOAD: how many rows a transaction looks up
	case $1 in
	nestloop | indexonly) echo 10000 ;;
	bitmap) echo 1000 ;;
	*) echo 1 ;;
	esac
}
# lookup_options WORKLOAD: for PGOPTIONS
lookup_options() {
	local o options=(synchronous_commit=off jit=off max_parallel_workers_per_gather=0)
	case $1 in
	nestloop | indexonly) options+=(enable_hashjoin=off enable_mergejoin=off enable_bitmapscan=off enable_memoize=off enable_material=off enable_seqscan=off) ;;
	bitmap) options+=(enable_seqscan=off enable_indexscan=off) ;;
	esac
	for o in "${options[@]}"; do printf ' -c %s' "$o"; done
}
lookup_query() { # WORKLOAD VALUE
	case $1 in
	nestloop) echo "select sum(s.k) from probe p join spread s on s.id = p.id where p.part = $2" ;;
	indexonly) echo "select count(s.id) from probe p join spread s on s.id = p.id where p.part = $2" ;;
	bitmap) echo "select sum(id) from spread where k between $2 and $2 + 9" ;;
	esac
}
# lookup_check PORT: do the queries have the plans that they are to have?
lookup_check() {
	local w node
	for w in nestloop indexonly bitmap; do
		case $w in
		nestloop) node='Index Scan using spread_id_idx' ;;
		indexonly) node='Index Only Scan using spread_id_idx' ;;
		bitmap) node='Bitmap Heap Scan on spread' ;;
		esac
		PGOPTIONS=$(lookup_options $w) sql "$1" "explain (costs off) $(lookup_query $w 1)" | grep -qF "$node" ||
			die "the query for $w has another plan than \"$node\""
	done
}
# lookup_pgbench WORKLOAD: sets lookup_args, the options for pgbench
lookup_pgbench() {
	lookup_args=(--random-seed=1)
	case $1 in
	tpcb) lookup_args+=(-b tpcb-like) ;;
	select) lookup_args+=(-b select-only) ;;
	hot)
		echo 'select abalance from pgbench_accounts where aid = 1;' >"$work/$1.sql"
		lookup_args+=(-f "$work/$1.sql")
		;;
	*)
		{
			echo "\\set value random(1, $([ "$1" = bitmap ] && echo 2000 || echo 20))"
			echo "$(lookup_query "$1" :value);"
		} >"$work/$1.sql"
		lookup_args+=(-f "$work/$1.sql")
		;;
	esac
}

# what load_section protects
mapfile -t shared_functions < <(compgen -A function)
