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
# postgresql.conf, ALTER SYSTEM or an option says otherwise.  A server that does not come
# with the library preloads it then.  docs/containers.md has more.
set -euo pipefail

say() { printf 'docker-entrypoint.sh: %s\n' "$*" >&2; }
tell() { # KIND MESSAGE [HINT]...
	say "$1: $2"
	[ $# -eq 2 ] || printf 'hint: %s\n' "${@:3}" >&2
}
die() { # MESSAGE [HINT]...
	tell error "$@"
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
major=${PG_MAJOR:-}
if [ -z "$major" ]; then
	major=$(postgres --version)
	major=${major#*) } && major=${major%%[!0-9]*}
fi
PGDATA=$(realpath -m -s -- "${PGDATA:-/var/lib/postgresql/$major/docker}")
export PGDATA
cache_type=$(stat -f -c %T /cache 2>/dev/null) || cache_type=missing
[ ! -L /cache ] || cache_type="symbolic link"

# ---------------------------------------------------------------- as root

drop=(setpriv --reuid=postgres --regid=postgres --init-groups --)

# foreign DIRECTORY [TEST...]: a file there that does not belong to the server's user
foreign() { "${drop[@]}" find "$1" -xdev ! -user postgres "${@:2}" -print -quit 2>/dev/null || true; }

# own DIRECTORY: the server's user makes it if it is missing; does that user own it?
# shellcheck disable=SC2016 # for the other shell
own() { "${drop[@]}" bash -c 'umask 077 && mkdir -p "$1" && [ -O "$1" ]' own "$1" 2>/dev/null; }

# give DIRECTORY [MODE]: the server's user owns it afterwards, with what is in there.  What
# it can make itself, it makes.  Root only helps with what belongs to somebody else,
# and follows no link, because that user may have made it: each name is looked up
# in a directory that is open.  Other file systems that are mounted there stay as they are.
give() {
	local dir=$1 top=$1 parent what=() file hint="on the host: chown -R 999:999 the directory that is mounted there"
	if ! own "$dir"; then
		[ "$(realpath -m -- "$dir")" = "$dir" ] || die "the user postgres does not own $dir, and a link leads there"
		# What holds neither a cluster nor WAL is not the server's, but named by mistake.
		if [ -d "$dir" ] && [ "$dir" != $socket ] && [ -n "$(ls -A "$dir")" ] && [ ! -e "$dir/PG_VERSION" ] && [ ! -e "$dir/archive_status" ]; then return; fi
		while [ ! -e "$top" ] && [ ! -e "${top%/*}/" ]; do top=${top%/*}; done
	elif [ -z "$(foreign "$dir")" ]; then
		return
	fi
	# A name may be a link to somebody else's file, unless the kernel forbids such links.
	[ "$(cat /proc/sys/fs/protected_hardlinks 2>/dev/null)" = 1 ] || what=(-type d)
	parent=${top%/*}
	(
		# A link may have come since.  realpath asks the kernel where this is, the shell's pwd does not.
		cd "${parent:-/}" && [ "$(realpath .)" = "${parent:-/}" ] || exit
		[ -e "./${top##*/}" ] || mkdir -m "${2:-700}" "./${top##*/}"
		find "./${top##*/}" -xdev ! -user postgres "${what[@]}" -execdir chown -h postgres:postgres {} +
	) 2>/dev/null || true
	own "$dir" || die "$dir cannot be given to the user postgres" "$hint"
	file=$(foreign "$dir" ! -writable)
	[ -z "$file" ] || tell warning "there are files in $dir that the server cannot write, and that cannot be given to it: $file" "$hint"
}

# The directory where the container starts may be one that only root can enter, and find returns there.
if [ "$(id -u)" -eq 0 ]; then
	"${drop[@]}" test -x . || cd /
	give "$PGDATA"
	give $socket 3775 # as the official image's
	[ -z "${POSTGRES_INITDB_WALDIR:-}" ] || give "$(realpath -m -s -- "$POSTGRES_INITDB_WALDIR")"
	case $cache_type in
	tmpfs | hugetlbfs)
		# Nobody else may exchange the pool.  If this fails, the server starts without it.
		[ "$(stat -c '%U %a' /cache)" = 'postgres 700' ] || { chown -h postgres:postgres /cache && chmod 0700 /cache; } ||
			say "warning: the owner and mode of /cache cannot be set"
		;;
	esac
	export HOME=~postgres
	exec "${drop[@]}" "$0" "$@"
fi
# A user ID without a name has none, and root's is of no use to others.
if [ "${HOME:-/}" = / ] || [ ! -x "$HOME" ]; then export HOME=/var/lib/postgresql; fi

# ---------------------------------------------------------------- the cache

# value_of SETTING [OPTION]...: with the configuration, and the container's arguments.  A
# setting of the cache that nobody has set has none.
value_of() { postgres -C "$1" "${arguments[@]}" "${@:2}" 2>/dev/null; }

# preload_library: sets the array preload, which goes behind the container's arguments: with
# the library, unless the server comes with it, or it is in the list that they leave.
preload_library() {
	local libraries
	preload=()
	if value_of persistent_cache_mode >/dev/null; then return; fi
	libraries=$(value_of shared_preload_libraries) || return 0
	case ",${libraries//[ \"]/}," in
	*,pg_pcache,*) ;;
	*) preload=(-c "shared_preload_libraries=${libraries:+$libraries, }pg_pcache") ;;
	esac
}

# cache_options: sets the arrays cache and preload.  A setting gets our value if it has another
# one when ours stand above the first line of the configuration, so nothing overrides them.
cache_options() {
	local defaults name value config
	cache=() preload=()
	case $cache_type in
	tmpfs | hugetlbfs) ;;
	*)
		value=$(value_of pcache.mode) || value=off
		if [ "${value,,}" != off ]; then
			preload_library
			say "the persistent cache is configured: pcache.mode = $value"
		elif [ "$cache_type" = missing ]; then
			say "the persistent cache is off: there is no /cache (a tmpfs or hugetlbfs that outlives the container)"
		elif [ "$cache_type" = "symbolic link" ]; then
			say "the persistent cache is off: /cache is a symbolic link, which root does not follow; mount the volume at /cache itself"
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
		value=$(value_of "pcache.$name" -c "config_file=$defaults") || value=
		if [ -n "$value" ] && [ "$value" != "$(value_of "pcache.$name")" ]; then cache+=(-c "pcache.$name=$value"); fi
	done
	rm "$defaults"
	value=$(postgres "${cache[@]}" "${arguments[@]}" -C pcache.mode 2>/dev/null) || return 0
	if [ "${value,,}" = off ]; then
		say "the persistent cache is off, as configured"
	else
		preload_library
		say "the persistent cache is on: pcache.mode = $value, pcache.directory = $(postgres "${cache[@]}" "${arguments[@]}" -C pcache.directory)"
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

# What initdb makes is moved from the first directory to the second once it is
# complete, and then to PGDATA, PG_VERSION last.  So a cluster in PGDATA is complete,
# and what is in the first one has never been used.
mark=$PGDATA/first-start-is-not-complete
begun=$PGDATA/initdb-is-not-complete
made=$PGDATA/initdb-is-complete

# make_cluster: runs initdb
make_cluster() {
	local method options=() wrapper=() passwd=
	# An initdb of 15 takes no settings.
	[ "$major" -lt 16 ] || options=(-c 'listen_addresses=*')
	[ -z "$POSTGRES_PASSWORD" ] || options+=("--pwfile=/dev/fd/3")
	[ -z "${POSTGRES_INITDB_WALDIR:-}" ] || options+=("--waldir=$POSTGRES_INITDB_WALDIR")
	# Words are quoted as in a shell, but nothing is expanded.
	mapfile -d '' -t -O ${#options[@]} options < <(xargs -r printf '%s\0' <<<"$POSTGRES_INITDB_ARGS")
	wait $! || die "POSTGRES_INITDB_ARGS cannot be read: $POSTGRES_INITDB_ARGS" "are all quotes closed?"
	# initdb wants a name for a user ID that a platform has chosen.
	if ! getent passwd "$(id -u)" >/dev/null; then
		passwd=$(mktemp -p $socket)
		echo "postgres:x:$(id -u):$(id -g):PostgreSQL:/var/lib/postgresql:/bin/false" >"$passwd"
		wrapper=(env LD_PRELOAD=libnss_wrapper.so "NSS_WRAPPER_PASSWD=$passwd" NSS_WRAPPER_GROUP=/etc/group)
	fi
	echo "The first start of this cluster has not run all of $scripts." >"$mark"
	if ! "${wrapper[@]}" initdb --username="$POSTGRES_USER" --no-instructions "${options[@]}" -D "$begun" 3< <(printf '%s\n' "$POSTGRES_PASSWORD"); then
		[ -e "$begun" ] || rm "$mark"
		die "initdb failed"
	fi
	[ -z "$passwd" ] || rm "$passwd"
	[ "$major" -ge 16 ] || printf "\nlisten_addresses = '*'\n" >>"$begun/postgresql.conf"
	method=${POSTGRES_HOST_AUTH_METHOD:-$(PGDATA=$begun value_of password_encryption)}
	printf '\nhost all all all %s\n' "$method" >>"$begun/pg_hba.conf"
	mv -T "$begun" "$made"
}

new_cluster() {
	local file
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

	if ! (umask 077 && mkdir -p "$PGDATA") || [ ! -O "$PGDATA" ]; then
		die "the data directory $PGDATA does not belong to the user ID $(id -u)" "change its owner on the host" \
			"a container that starts as root does that itself, if the directory is empty or holds a cluster"
	fi
	trap stop_server EXIT
	trap 'exit 130' INT TERM
	[ -d "$made" ] || make_cluster
	chmod --reference="$made" "$PGDATA"
	find "$made" -mindepth 1 -maxdepth 1 ! -name PG_VERSION -exec mv -t "$PGDATA" {} +
	mv "$made/PG_VERSION" "$PGDATA"
	rmdir "$made"

	# This server is reached by its socket only.
	cache_options 2>/dev/null
	postgres "${cache[@]}" "${arguments[@]}" "${preload[@]}" -c listen_addresses= -c unix_socket_directories=$socket -p "${PGPORT:-5432}" &
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

# Images of earlier versions had the data directory elsewhere.
if [ "$PGDATA" = "/var/lib/postgresql/$major/docker" ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
	hint="mount the volume at /var/lib/postgresql, or set PGDATA; a cluster of an earlier version goes to $major by pg_upgrade"
	! mountpoint -q /var/lib/postgresql/data || die "a volume is mounted at /var/lib/postgresql/data, but the data directory is $PGDATA" "$hint"
	for file in /var/lib/postgresql{,/data,/*/docker}/PG_VERSION; do
		[ ! -s "$file" ] || die "there is a cluster in ${file%/*}, but the data directory is $PGDATA" "$hint"
	done
fi

# What is neither a cluster nor left by make_cluster is somebody's, and stays.
others=$(find "$PGDATA/" -mindepth 1 -maxdepth 1 ! -name "${mark##*/}" ! -name "${begun##*/}" 2>/dev/null | head -n 3 | xargs -r -d '\n') || true
if [ -s "$PGDATA/PG_VERSION" ] && [ -e "$mark" ]; then
	die "the first start of the cluster in $PGDATA was interrupted, so not all of $scripts has run" \
		"remove the contents of $PGDATA to begin anew" \
		"or remove the file $mark to go on with what is there"
elif [ -e "$mark" ] && { [ -z "$others" ] || [ -d "$made" ]; }; then
	say "initdb was interrupted, and is completed now"
	rm -rf "$begun"
	new_cluster
elif [ -z "$others" ]; then
	new_cluster
elif [ ! -s "$PGDATA/PG_VERSION" ] || [ ! -s "$PGDATA/global/pg_control" ]; then
	die "$PGDATA is not empty, but there is no complete cluster in it: $others" \
		"is the right volume mounted, and PGDATA the directory of the cluster on it?" \
		"a new cluster needs an empty directory: set PGDATA to one below the mount, or remove the contents if nobody needs them"
fi
cache_options
unset POSTGRES_PASSWORD
exec postgres "${cache[@]}" "${arguments[@]}" "${preload[@]}"
