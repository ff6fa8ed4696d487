# shellcheck shell=bash disable=SC2154 # run's variables
# Sessions read and change registers and lists, while a primary and its synchronous
# standby are killed or stopped, started, and promoted.  Some order of all operations
# must explain every answer, says the checker porcupine; it must also find one answer
# that was falsified.
command -v go >/dev/null || skip_suite outside "linearizability: go is not installed; as root: apt-get install golang-go"
export GOCACHE=$BUILD/outside/go-cache GOMODCACHE=$BUILD/outside/go-modules GOFLAGS='-mod=readonly -modcacherw -buildvcs=false' GOTOOLCHAIN=local
(cd "$here/linearizability" && go mod download) >"$work/go.log" 2>&1 || skip_suite outside "linearizability: the Go modules cannot be had here: $(tail -n 1 "$work/go.log")"
(cd "$here/linearizability" && go build -o "$work/linearizability" .) || die "could not build tests/outside/linearizability"

# standby CLUSTER PRIMARY: make one of it
standby() {
	rm -rf "${work:?}/$1"
	"$bin/pg_basebackup" -p "${port[$2]}" -D "$work/$1" -c fast -X stream -R --no-sync
	configure "$1"
	begin "$1" || die "the standby does not start" "$(tail -n 5 "$work/$1.log")"
	# what it replays has to be written, and cannot stay; what it has read can
	sql "$1" 'SELECT count(*) FROM pg_attribute' >/dev/null || die "the standby does not answer" "$(tail -n 5 "$work/$1.log")"
}

# in_sync: until the standby has all that can be read on the primary
in_sync() { sql "$primary" "SET statement_timeout = '120s'; UPDATE synced SET n = n + 1" || die "the standby does not follow" "$(tail -n 5 "$work/$standby.log")"; }

cluster a
primary=a standby=b
sql a "CREATE TABLE cell (k text PRIMARY KEY, v text); CREATE TABLE synced AS SELECT 1 AS n"
standby b a
sql a "ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (a, b)'"
end_of b
sql a 'SELECT pg_reload_conf()' >/dev/null
standby b a
in_sync
echo "${port[a]}" >"$work/port"
"$work/linearizability" -dir "$sock" -port "$work/port" -seed "$SEED" -history "$work/history" 2>"$work/sessions.log" &
jobs=($!)

events=(restart promote standby promote restart)
end=$((SECONDS + DURATION))
for ((i = 0; i < ${#events[@]} || SECONDS < end; i++)); do
	event=${events[i < ${#events[@]} ? i : RANDOM % ${#events[@]}]}
	sleep "$((1 + RANDOM % 2)).$((RANDOM % 10))"
	case $event in
	restart)
		fault "$primary"
		start "$primary" "event $i: the primary was $how"
		;;
	standby)
		fault "$standby"
		start "$standby" "event $i: the standby was $how"
		;;
	promote)
		fault "$primary"
		"$bin/pg_ctl" -D "$work/$standby" -w promote >/dev/null || die "no promotion"
		read -r primary standby <<<"$standby $primary"
		echo "${port[$primary]}" >"$work/port.new"
		mv "$work/port.new" "$work/port"
		standby "$standby" "$primary"
		is "event $i: the primary was $how, and the standby promoted" "$(sql "$primary" 'SELECT pg_is_in_recovery()')" f
		;;
	esac
	in_sync
	sound "$primary" "event $i"
done
kill -TERM "${jobs[0]}"
wait "${jobs[0]}" || die "the sessions have failed" "$(cat "$work/sessions.log")"
jobs=()
cat "$work/sessions.log"
sound a 'in the end'
sound b 'in the end'
is 'the cells were changed' "$(sql "$primary" 'SELECT count(*) > 50 FROM cell')" t

rc=0
"$work/linearizability" -check "$work/history" || rc=$?
is 'there is an order of the operations that explains all answers' $rc 0
for kind in register list; do
	rc=0
	"$work/linearizability" -check "$work/history" -stale $kind >"$work/stale" 2>&1 || rc=$?
	head -n 2 "$work/stale"
	is "there is none with a stale answer for a $kind" $rc 3
done
