#!/bin/bash
# Shared by the suites that have a server as the first process of a container made
# by bubblewrap.  Source it after tools/lib.sh.
#
# A suite sets work, which gets the file log, and sock, which has the server's
# socket, and defines ready: does the server of the container accept connections?
# shellcheck disable=SC2034,SC2154 # the suites' variables

passed=0 failed=0 container=

# need_bwrap SUITE: or skip it
need_bwrap() {
	command -v bwrap >/dev/null || skip_suite "$1" "bwrap is not installed; as root: apt-get install bubblewrap"
	bwrap --unshare-user --unshare-pid --dev-bind / / true 2>/dev/null || skip_suite "$1" "users cannot make namespaces here"
}

is() { # is WHAT GOT EXPECTED
	if [ "$2" = "$3" ]; then passed=$((passed + 1)) && echo "ok - $1"; else failed=$((failed + 1)) && echo "not ok - $1: got \"$2\", expected \"$3\""; fi
}
says() { # says WHAT REGEXP: since the container was started
	if grep -E "$2" "$work/log" >/dev/null; then passed=$((passed + 1)) && echo "ok - $1"; else failed=$((failed + 1)) && echo "not ok - $1: no \"$2\" in:" && cat "$work/log"; fi
}

# launch BWRAP-ARGUMENT...: start a container; ends when its server is ready, or
# returns 1 when it has ended before, with its exit status in ended
launch() {
	local dead='' i=0
	: >"$work/log"
	bwrap "$@" >>"$work/log" 2>&1 </dev/null &
	container=$!
	until ready; do
		[ -z "$dead" ] || { gone && return 1; }
		kill -0 "$container" 2>/dev/null || dead=1
		[ $((i += 1)) -lt 1500 ] || { cat "$work/log" && die "nothing can connect to the container"; }
		sleep 0.1
	done
}

# gone: the container has ended; sets ended to its exit status
gone() {
	ended=0
	wait "$container" 2>/dev/null || ended=$?
	container=
}

# end SIGNAL: of the server, from outside, as the platform does it
end() {
	kill -"$1" "$(pgrep -P "$container")"
	timeout 60 tail -f --pid="$container" /dev/null || kill -KILL "$container"
	gone
	rm -f "$sock"/.s.*
}

# checkpoint: what was changed before is kept if processes are killed now; the server needs a
# moment to note it.  A suite has sql.
checkpoint() { sql CHECKPOINT && sleep 1; }

start_query="SELECT last_start || ', ' || coalesce(last_start_detail, 'kept ' || (kept >= (SELECT sum(relpages) FROM pg_class WHERE relname ~ '^t'))) FROM pg_pcache_pool"
