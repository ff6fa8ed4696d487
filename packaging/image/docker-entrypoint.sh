#!/bin/bash
# docker-entrypoint.sh [postgres] [OPTION]...
# docker-entrypoint.sh COMMAND [ARGUMENT]...
#
# The first program of a container of our image.  It makes the cluster in PGDATA
# if there is none, turns the persistent cache on if /cache is in memory, and
# becomes the server.  Any other command is run as it is.
#
# The variables and directories are those of the official image of PostgreSQL:
#
#   POSTGRES_PASSWORD           required for a new cluster, unless the method is trust
#   POSTGRES_USER, POSTGRES_DB  postgres, and a database with the name of the user
#   POSTGRES_INITDB_ARGS        options for initdb; POSTGRES_INITDB_WALDIR: its --waldir
#   POSTGRES_HOST_AUTH_METHOD   for all connections by network; that of password_encryption
#   NAME_FILE                   a file that holds the value of one of the first four
#   /docker-entrypoint-initdb.d *.sh, *.sql, *.sql.gz, *.sql.xz and *.sql.zst for a new
#                               cluster, by name
#
# The cache is on in mode planned_restart, with the pool in /cache/pool, unless
# postgresql.conf, ALTER SYSTEM or an option says otherwise.  docs/containers.md has more.
set -euo pipefail

say() { printf 'docker-entrypoint.sh: %s\n' "$*" >&2; }
die() { # MESSAGE [HINT]...
	say "error: $1"
	shift
	[ $# -eq 0 ] || printf 'hint: %s\n' "$@" >&2
	exit 1
}

case ${1:-} in
'' | -*) set -- postgres "$@" ;;
esac
for arg in "$@"; do
	case $arg in
	-\? | --help | --describe-config | -V | --version) exec "$@" ;;
	esac
done
[ "$1" = postgres ] || exec "$@"
arguments=("${@:2}")

scripts=/docker-entrypoint-initdb.d
socket=/run/postgresql
export PGDATA=${PGDATA:-/var/lib/postgresql/18/docker}
cache_type=$(stat -f -c %T /cache 2>/dev/null) || cache_type=missing

# ---------------------------------------------------------------- as root

drop=(setpriv --reuid=postgres --regid=postgres --init-groups --)

# give DIRECTORY: the server's user owns it afterwards.  What it can make itself,
# it makes.  Root only helps with volumes that belong to somebody else, and
# follows no link, because that user may have made it.
give() {
	local dir=$1 top=$1
	# shellcheck disable=SC2016 # for the other shell
	"${drop[@]}" bash -c 'umask 077 && mkdir -p "$1" && [ -O "$1" ]' give "$dir" 2>/dev/null && return
	[ "$(realpath -m -- "$dir")" = "$dir" ] || die "the user postgres does not own $dir, and a link leads there"
	while [ ! -e "$top" ] && [ ! -e "${top%/*}/" ]; do top=${top%/*}; done
	(umask 077 && mkdir -p "$dir")
	chown -R -h postgres:postgres "$top" ||
		die "$top cannot be given to the user postgres" "on the host: chown -R 999:999 the directory that is mounted there"
}

if [ "$(id -u)" -eq 0 ]; then
	give "$PGDATA"
	give $socket
	[ -z "${POSTGRES_INITDB_WALDIR:-}" ] || give "$POSTGRES_INITDB_WALDIR"
	case $cache_type in
	tmpfs | hugetlbfs)
		# Nobody else may exchange the pool.  If this fails, the server starts without it.
		[ "$(stat -c '%U %a' /cache)" = 'postgres 700' ] || { chown -h postgres:postgres /cache && chmod 0700 /cache; } ||
			say "warning: the owner and mode of /cache cannot be set"
		;;
	esac
	exec "${drop[@]}" "$0" "$@"
fi

# ---------------------------------------------------------------- the cache

# value_of SETTING [OPTION]...: with the configuration, and the container's arguments
value_of() { postgres -C "$1" "${arguments[@]}" "${@:2}" 2>/dev/null; }

# cache_options: sets the array cache.  A setting gets our value if it has another
# one when ours stand above the first line of the configuration, so nothing overrides them.
cache_options() {
	local defaults name value config
	cache=()
	case $cache_type in
	tmpfs | hugetlbfs) ;;
	*)
		value=$(value_of persistent_cache_mode) || value=off
		if [ "$value" != off ]; then
			say "the persistent cache is configured: pcache.mode = $value"
		elif [ "$cache_type" = missing ]; then
			say "the persistent cache is off: there is no /cache (a tmpfs or hugetlbfs that outlives the container)"
		else
			say "the persistent cache is off: /cache is not in memory (a tmpfs or hugetlbfs), but $cache_type"
		fi
		return
		;;
	esac
	# An error in the configuration is for the server to report.
	config=$(value_of config_file) || return 0
	defaults=$(mktemp -p $socket) || {
		say "the persistent cache is off: $socket cannot be written"
		return 0
	}
	printf "pcache.mode = planned_restart\npcache.directory = '/cache/pool'\ninclude '%s'\n" "${config//\'/\'\'}" >"$defaults"
	for name in mode directory; do
		value=$(value_of "persistent_cache_$name" -c "config_file=$defaults") || value=
		if [ -n "$value" ] && [ "$value" != "$(value_of "persistent_cache_$name")" ]; then cache+=(-c "pcache.$name=$value"); fi
	done
	rm "$defaults"
	value=$(postgres "${cache[@]}" "${arguments[@]}" -C persistent_cache_mode 2>/dev/null) || return 0
	if [ "$value" = off ]; then
		say "the persistent cache is off, as configured"
	else
		say "the persistent cache is on: pcache.mode = $value, pcache.directory = $(postgres "${cache[@]}" "${arguments[@]}" -C persistent_cache_directory)"
	fi
}

# ---------------------------------------------------------------- a new cluster

# read_variable NAME [DEFAULT]: exports NAME, from the file that NAME_FILE names if that is set
read_variable() {
	local name=$1 file=$1_FILE value=${!1:-}
	if [ -n "${!file:-}" ]; then
		[ -z "$value" ] || die "both $name and $file are set" "set one of them"
		value=$(cat -- "${!file}") || die "$file names a file that cannot be read: ${!file}" \
			"the file must be readable for the user ID $(id -u)"
	fi
	export "$name=${value:-${2:-}}"
	unset "$file"
}

run_script() { # FILE
	case $1 in
	*.sh)
		say "running $1"
		# shellcheck source=/dev/null
		if [ -x "$1" ]; then "$1"; else (set +u && . "$1"); fi
		;;
	*.sql) say "running $1" && "${psql[@]}" -f "$1" ;;
	*.sql.gz) say "running $1" && gzip -dc "$1" | "${psql[@]}" ;;
	*.sql.xz) say "running $1" && xz -dc "$1" | "${psql[@]}" ;;
	*.sql.zst) say "running $1" && zstd -dcq "$1" | "${psql[@]}" ;;
	*) say "ignoring $1" ;;
	esac
}

server=
# shellcheck disable=SC2317 # called by a trap
stop_server() {
	[ -z "$server" ] || kill -INT "$server" 2>/dev/null || true
	wait
}

# new_cluster MARK: the file MARK is there from initdb on until all scripts have run
new_cluster() {
	local mark=$1 method options=(-c 'listen_addresses=*') wrapper=() passwd file
	local psql=(psql -v ON_ERROR_STOP=1 --no-psqlrc)
	read_variable POSTGRES_PASSWORD
	read_variable POSTGRES_USER postgres
	read_variable POSTGRES_DB "$POSTGRES_USER"
	read_variable POSTGRES_INITDB_ARGS
	export POSTGRES_HOST_AUTH_METHOD=${POSTGRES_HOST_AUTH_METHOD:-}
	if [ "$POSTGRES_HOST_AUTH_METHOD" = trust ]; then
		say "warning: POSTGRES_HOST_AUTH_METHOD is trust, so whoever reaches the port is let in without a password"
	elif [ -z "$POSTGRES_PASSWORD" ]; then
		die "there is no cluster in $PGDATA, and no password for the superuser of a new one" \
			"set POSTGRES_PASSWORD, or POSTGRES_PASSWORD_FILE to the name of a file that holds it" \
			"POSTGRES_HOST_AUTH_METHOD=trust lets everybody in without a password"
	fi

	[ -z "$POSTGRES_PASSWORD" ] || options+=("--pwfile=/dev/fd/3")
	[ -z "${POSTGRES_INITDB_WALDIR:-}" ] || options+=("--waldir=$POSTGRES_INITDB_WALDIR")
	# Words are quoted as in a shell, but nothing is expanded.
	mapfile -d '' -t -O ${#options[@]} options < <(xargs -r printf '%s\0' <<<"$POSTGRES_INITDB_ARGS")
	# initdb wants a name for a user ID that a platform has chosen.
	if ! getent passwd "$(id -u)" >/dev/null; then
		passwd=$(mktemp -p $socket)
		echo "postgres:x:$(id -u):$(id -g):PostgreSQL:/var/lib/postgresql:/bin/false" >"$passwd"
		wrapper=(env LD_PRELOAD=libnss_wrapper.so "NSS_WRAPPER_PASSWD=$passwd" NSS_WRAPPER_GROUP=/etc/group)
	fi
	"${wrapper[@]}" initdb --username="$POSTGRES_USER" "${options[@]}" 3< <(printf '%s\n' "$POSTGRES_PASSWORD")
	echo "The first start of this cluster has not run all of $scripts." >"$mark"
	[ -z "${passwd:-}" ] || rm "$passwd"
	method=${POSTGRES_HOST_AUTH_METHOD:-$(value_of password_encryption)}
	printf '\nhost all all all %s\n' "$method" >>"$PGDATA/pg_hba.conf"

	# This server is reached by its socket only.
	cache_options 2>/dev/null
	trap stop_server EXIT
	trap 'exit 130' INT TERM
	postgres "${cache[@]}" "${arguments[@]}" -c listen_addresses= -c unix_socket_directories=$socket -p "${PGPORT:-5432}" &
	server=$!
	local -x PGHOST=$socket PGHOSTADDR='' PGUSER=$POSTGRES_USER PGPASSWORD=$POSTGRES_PASSWORD PGDATABASE=postgres
	until pg_isready -q; do
		kill -0 "$server" 2>/dev/null || die "the server does not start"
		sleep 0.1
	done
	[ "$POSTGRES_DB" = postgres ] || createdb -- "$POSTGRES_DB"
	PGDATABASE=$POSTGRES_DB
	shopt -s nullglob
	for file in "$scripts"/*; do run_script "$file"; done
	kill -INT "$server"
	wait "$server" || die "the server of the first start did not stop cleanly"
	server=
	trap - EXIT INT TERM
	rm "$mark"
}

# The volume of the images of earlier versions was a level deeper.
if [ "$PGDATA" = /var/lib/postgresql/18/docker ] && mountpoint -q /var/lib/postgresql/data; then
	die "a volume is mounted at /var/lib/postgresql/data, but the data directory is $PGDATA" \
		"mount the volume at /var/lib/postgresql, or set PGDATA; a cluster of an earlier version goes to 18 by pg_upgrade"
fi

mark=$PGDATA/first-start-is-not-complete
if [ ! -s "$PGDATA/PG_VERSION" ]; then
	new_cluster "$mark"
elif [ -e "$mark" ]; then
	die "the first start of the cluster in $PGDATA was interrupted, so not all of $scripts has run" \
		"remove the contents of $PGDATA to begin anew" \
		"or remove the file $mark to go on with what is there"
fi
cache_options
unset POSTGRES_PASSWORD
exec postgres "${cache[@]}" "${arguments[@]}"
