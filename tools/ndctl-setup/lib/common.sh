#!/bin/bash
# Shared by the verbs: messages, the state file, who may change what, and the one way to change anything.
# Source it.  Set by the entry script: STATE_FILE, DRY_RUN, and the settings in CONFIG.

say() { [ "$JSON" -eq 1 ] || printf '%s\n' "$*"; }
note() { printf '%s\n' "$*" >&2; }
warn() { printf 'ndctl-setup: warning: %s\n' "$*" >&2; }

# die MESSAGE [HINT]...  Names of files come from others, and must not talk to the terminal.
die() {
	printf 'ndctl-setup: error: %s\n' "${1//[[:cntrl:]]/?}" >&2
	shift
	[ $# -eq 0 ] || printf 'hint: %s\n' "${@//[[:cntrl:]]/?}" >&2
	exit 1
}

# load_config FILTER JQ-ARGUMENT...: sets CONFIG to the object that the filter makes, and
# SETTINGS to what is in it.  It is taken out of the JSON once: jq takes a while to start.
declare -A SETTINGS=()
load_config() {
	local name value
	{
		IFS= read -r CONFIG || die "the settings could not be read"
		while IFS=$'\t' read -r name value; do SETTINGS[$name]=$value; done
	} < <(jq -r "$1 | tojson, (to_entries[] | select(.value != null and (.value | type | IN(\"array\", \"object\") | not)) | \"\\(.key)\\t\\(.value)\")" "${@:2}")
}

# need COMMAND PACKAGE: stop if a program is missing.
need() { command -v "$1" >/dev/null || die "the program $1 is not there" "install the package $2"; }

new_uuid() { if [ "$DRY_RUN" -eq 1 ]; then echo NEW-UUID; else cat /proc/sys/kernel/random/uuid; fi; }

# ---------------------------------------------------------------- state file

# {version, config, records: [{key, undo, command, done}]}, oldest first.
state_read() { if [ -e "$STATE_FILE" ]; then cat "$STATE_FILE"; else echo '{"version": 1, "records": []}'; fi; }

# The records are taken out of the JSON once, and written by the shell: jq takes a while to
# start, and each change is recorded twice.  KEYS has them in their order, RECORD_FIELDS
# the names of the fields of "undo", RECORD the values under "KEY|NAME", where "/command" and
# "/done" are names as well.
KEYS=()
declare -A RECORD=() RECORD_FIELDS=()
state_load() {
	local key name value
	KEYS=() RECORD=() RECORD_FIELDS=()
	[ -e "$STATE_FILE" ] || return 0
	while IFS= read -r -d '' key && IFS= read -r -d '' name && IFS= read -r -d '' value; do
		[ -n "${RECORD["$key|/done"]:-}" ] || KEYS+=("$key") RECORD["$key|/done"]=false
		RECORD["$key|$name"]=$value
		case $name in /*) ;; *) RECORD_FIELDS["$key"]+=" $name" ;; esac
	done < <(jq -j '.records[] | .key as $key
		| ({"/done": .done, "/command": .command} + .undo) | to_entries[]
		| "\($key)\u0000\(.key)\u0000\(.value)\u0000"' "$STATE_FILE")
}

# json_string TEXT: sets JSON to it, quoted
JSON_TEXT=''
json_string() {
	local text=${1//\\/\\\\} c hex
	text=${text//\"/\\\"}
	text=${text//$'\n'/\\n}
	text=${text//$'\t'/\\t}
	while [[ $text =~ [[:cntrl:]] ]]; do
		c=${BASH_REMATCH[0]}
		printf -v hex '\\u%04x' "'$c"
		text=${text//"$c"/$hex}
	done
	JSON_TEXT='"'$text'"'
}

# Once, before it is used.
state_check() {
	[ -e "$STATE_FILE" ] || [ -L "$STATE_FILE" ] || return 0
	require_by_root "$STATE_FILE" "state file" "keep it where only root can: --state=FILE"
	[ -r "$STATE_FILE" ] || die "the state file $STATE_FILE cannot be read by $(id -un)"
	jq -e '.version == 1 and (.records | type == "array")' "$STATE_FILE" >/dev/null 2>&1 ||
		die "the state file $STATE_FILE is damaged, or of another version" "it is needed to undo; do not remove it without need"
	state_load
}

# One at a time; the lock goes with the process.
state_lock() {
	local mask
	mask=$(umask)
	umask 077
	mkdir -p "$(dirname "$STATE_FILE")"
	require_trusted "$(dirname "$STATE_FILE")" "--state=FILE puts the state file elsewhere"
	exec 8>>"$STATE_FILE.lock"
	umask "$mask"
	flock -n 8 || die "another ndctl-setup works on $STATE_FILE"
	state_load
}

# Replace the state file, durably: it must not be older than what it describes.
state_write() {
	local new=$STATE_FILE.new key name text between=''
	text="{\"version\": 1, \"config\": $CONFIG, \"records\": ["
	for key in "${KEYS[@]}"; do
		json_string "$key"
		text+="$between"$'\n'"  {\"key\": $JSON_TEXT, \"undo\": {"
		between=''
		for name in ${RECORD_FIELDS["$key"]}; do
			json_string "${RECORD["$key|$name"]}"
			text+="$between\"$name\": $JSON_TEXT" between=', '
		done
		json_string "${RECORD["$key|/command"]}"
		text+="}, \"command\": $JSON_TEXT, \"done\": ${RECORD["$key|/done"]}}" between=,
	done
	(umask 077 && printf '%s]}\n' "$text" >"$new")
	sync "$new"
	mv "$new" "$STATE_FILE"
	sync "${STATE_FILE%/*}"
}

# state_put KEY UNDO COMMAND DONE: add the record, or replace the one with this key.  UNDO is
# what undo_object prints.
state_put() {
	local key=$1 name value
	[ -n "${RECORD["$key|/done"]:-}" ] || KEYS+=("$key")
	RECORD["$key|/command"]=$3 RECORD["$key|/done"]=$4
	while IFS= read -r value; do
		[ -n "$value" ] || continue
		name=${value%%=*} value=${value#*=}
		case " ${RECORD_FIELDS["$key"]:-} " in *" $name "*) ;; *) RECORD_FIELDS["$key"]+=" $name" ;; esac
		RECORD["$key|$name"]=$value
	done <<<"$2"
	state_write
}

state_drop() {
	local key kept=() name
	for key in "${KEYS[@]}"; do [ "$key" = "$1" ] || kept+=("$key"); done
	KEYS=("${kept[@]}")
	# "unset" would expand what is in a key.
	for name in ${RECORD_FIELDS["$1"]:-} /command /done; do RECORD["$1|$name"]=''; done
	RECORD_FIELDS["$1"]=''
	state_write
}

# recorded KEY FIELD: of what would be undone, nothing if there is no such record
recorded() { [ -z "${RECORD["$1|$2"]:-}" ] || printf '%s\n' "${RECORD["$1|$2"]}"; }

is_recorded() { [ -n "${RECORD["$1|/done"]:-}" ]; }
is_finished() { [ "${RECORD["$1|/done"]:-}" = true ]; }

# ---------------------------------------------------------------- who may change what
#
# The server's user decides what the names in PGDATA and on the mounts stand
# for, at any moment.  Root would follow a link there, to a file of somebody
# else's.  So root changes names only in trusted directories, and whatever else
# is to be done the server's user does, with no more rights than the server has.

# by_root_only FILE: does it belong to root (or to who runs this)?
by_root_only() {
	local owner
	owner=$(stat -c %u "$1" 2>/dev/null) || return 1
	[ "$owner" -eq 0 ] || [ "$owner" -eq "$EUID" ]
}

# trusted DIR: prints DIR without symbolic links, if only root (or who runs
# this) can change what is in it, or where its name leads.  Each directory and
# each link on the way must be ours, and writable for nobody else; on the way
# that is fine where the sticky bit is set, as in /tmp.  What is missing at the
# end is kept: then the last directory that exists counts.
trusted() {
	local rest=${1#/} at='' part mode open=0 links=0
	[[ $1 == /* ]] || return 1
	while [ -n "$rest" ]; do
		part=${rest%%/*}
		if [ "$part" = "$rest" ]; then rest=''; else rest=${rest#*/}; fi
		case $part in '' | .) continue ;; ..) at=${at%/*} && continue ;; esac
		if [ -L "$at/$part" ]; then
			links=$((links + 1))
			by_root_only "$at/$part" && [ $links -lt 40 ] || return 1
			part=$(readlink -- "$at/$part")
			[[ $part != /* ]] || at=''
			rest=${part#/}/$rest
			continue
		fi
		at=$at/$part
		if [ ! -e "$at" ]; then
			at=$at${rest:+/$rest}
			break
		fi
		[ -d "$at" ] && mode=$(stat -c '%u %a' "$at") || return 1
		[ "${mode% *}" -eq 0 ] || [ "${mode% *}" -eq "$EUID" ] || return 1
		mode=${mode#* }
		open=$(((8#$mode & 8#022) != 0))
		[ $open -eq 0 ] || (((8#$mode & 8#1000) != 0)) || return 1
	done
	[ $open -eq 0 ] && printf '%s\n' "${at:-/}"
}

# require_trusted DIR HINT: root is going to make files there
require_trusted() {
	trusted "$1" >/dev/null || die "$1 is in the hands of others than root: owner or mode of it, or of a directory or link on the way" "$2"
}

# require_by_root FILE WHAT HINT: root does what stands in it, so nobody else may
# have written it, or put it there.  WHAT names it in messages, HINT says where it should be.
require_by_root() {
	local what="the $2 $1" mode
	trusted "$(dirname -- "$1")" >/dev/null || die "$what is in a directory that others than root can change" "$3"
	if [ -L "$1" ] || [ ! -f "$1" ]; then die "$what is not a regular file"; fi
	mode=$(stat -c %a "$1")
	if ! by_root_only "$1" || (((8#$mode & 8#022) != 0)); then
		die "$what was or can be written by others than root (owner $(stat -c %U "$1"), mode $mode)" \
			"read it; if it says what you want: chown root: $1 && chmod go-w $1"
	fi
}

# actor PATH: who makes, renames or removes the name PATH?  Sets AS, the words to
# put in front of the command, and AT, the path to use.  For root that is
# free of symbolic links, so that what was checked is what is used.
AS=() AT=''
actor() {
	local parent
	if parent=$(trusted "$(dirname -- "$1")"); then
		AS=() AT=${parent%/}/$(basename -- "$1")
	else
		AS=(as_server) AT=$1
	fi
}

# editor FILE: who changes what is in the file, which may be a link?
editor() {
	local target links=0
	actor "$1"
	while [ ${#AS[@]} -eq 0 ] && [ -L "$AT" ]; do
		links=$((links + 1))
		target=$(readlink -- "$AT")
		[[ $target == /* ]] || target=$(dirname -- "$AT")/$target
		if by_root_only "$AT" && [ $links -lt 40 ]; then actor "$target"; else AS=(as_server); fi
	done
	[ ${#AS[@]} -eq 0 ] || AT=$1
}

# Words that make the server's user run what follows, in PREFIX.  It shares neither
# terminal nor descriptors nor environment with root.  Tests name more variables.
PREFIX=()
server_prefix() {
	local user
	user=${SETTINGS[user]:-}
	PREFIX=()
	[ "$(id -un)" = "$user" ] || PREFIX=("$LIB/run-as" "--user=$user" ${NDCTL_SETUP_ENV:+"--env=$NDCTL_SETUP_ENV"} --)
}

server_group() { id -gn "${SETTINGS[user]:-}" 2>/dev/null || printf '%s\n' "${SETTINGS[user]:-}"; }

# as_server COMMAND...: run it as the server's user, also a function of ours
as_server() (
	server_prefix
	cd /
	umask 077
	if [ "$(type -t "$1")" = function ]; then
		"${PREFIX[@]}" bash -c "set -euo pipefail; $(declare -f "$1"); \"\$@\"" "$1" "$@"
	else
		"${PREFIX[@]}" "$@"
	fi
)

# server_reads COMMAND...: root looks with the eyes of the server's user, if there is one
server_reads() { if [ "$EUID" -eq 0 ] && id -u "${SETTINGS[user]:-}" >/dev/null 2>&1; then as_server "$@"; else "$@"; fi; }

# The server's user is not root: that would make all of this void.
check_user() {
	local user
	user=${SETTINGS[user]:-}
	id "$user" >/dev/null 2>&1 || die "there is no user \"$user\"" "--user=NAME names the one that runs the server"
	[ "$(id -u "$user")" -ne 0 ] || die "the server's user $user is root" "--user=NAME names the one that runs the server"
}

# ---------------------------------------------------------------- changes

# change KEY UNDO COMMAND...
#
# The only way in which anything is changed.  What has to be undone, of a
# kind that lib/undo.sh knows, is recorded before the command
# runs, so that a run that is cut off can be repeated or undone.  Nothing is
# recorded for KEY "-": the command is part of the change before it.  With
# --dry-run the command is only collected, in COMMANDS.  HINT says what to do if
# it fails, where there is something better to say than in general.
COMMANDS=() HINT=''
change() {
	local key=$1 undo=$2 text='' word words
	shift 2
	words=("$@")
	if [ "$1" = as_server ]; then
		server_prefix
		words=("${PREFIX[@]}" "${@:2}")
	fi
	for word in "${words[@]}"; do
		if [[ $word =~ ^[A-Za-z0-9_@%+=:,./{}-]+$ ]]; then text+=" $word"; else printf -v word '%q' "$word" && text+=" $word"; fi
	done
	text=${text# }
	if [ "$DRY_RUN" -eq 1 ]; then
		COMMANDS+=("$text")
		return 0
	fi
	note "    $text"
	[ "$key" = - ] || state_put "$key" "$undo" "$text" false
	"$@" </dev/null >&2 || die "this failed: $text" "${HINT:-mend what it complains of and run apply again, or take all back with undo}"
	[ "$key" = - ] || state_put "$key" "$undo" "$text" true
}

# undo_object KIND NAME VALUE...: as lines "NAME=VALUE"
undo_object() {
	[ "$DRY_RUN" -eq 0 ] || return 0
	printf 'kind=%s\n' "$1"
	shift
	[ $# -eq 0 ] || printf '%s=%s\n' "$@"
}

# write_file PATH TEXT [MODE]: install a file; called through change.
write_file() {
	local new
	if ! mkdir -p "$(dirname "$1")" || ! new=$(mktemp "$1.XXXXXX"); then return 1; fi
	if printf '%s\n' "$2" >"$new" && chmod "${3:-644}" "$new" && mv -T "$new" "$1"; then return 0; fi
	rm -f "$new"
	return 1
}

# add_line PATH LINE: append a line to a file; called through change.
add_line() {
	local text=$2
	[ ! -s "$1" ] || [ -z "$(tail -c 1 "$1")" ] || text=$'\n'$text
	printf '%s\n' "$text" >>"$1"
}

program() { # program NAME: of the server's, with its path
	local bindir
	bindir=${SETTINGS[bindir]:-}
	if [ -n "$bindir" ]; then printf '%s/%s\n' "${bindir%/}" "$1"; else command -v "$1" || echo "$1"; fi
}

# ---------------------------------------------------------------- what is where

# ndctl_namespace NAME FIELD: of the namespace that we recorded under this name, a field as
# ndctl shows it, or nothing
ndctl_namespace() {
	local key=namespace:$1
	is_recorded "$key" || return 0
	ndctl list -N -i -v 2>/dev/null | jq -nr --arg uuid "${RECORD["$key|uuid"]:-}" --arg found "${RECORD["$key|found_uuid"]:-}" \
		--arg via "${RECORD["$key|via"]:-}" --arg dev "${RECORD["$key|dev"]:-}" "
		first(inputs | if type == \"array\" then .[] else . end
		| select(([.uuid, .raw_uuid] | any(. != null and . != \"\" and (. == \$uuid or . == \$found)))
			or (\$via == \"adopt\" and .dev == \$dev)))
		| $2 // empty"
}

# device_of WHAT: "ns:NAME" or "lv:VG/LV" to a path
device_of() {
	local name=${1#*:}
	case $1 in
	lv:*) printf '/dev/%s\n' "$name" ;;
	ns:*)
		name=$(namespace_device "$name") || return
		printf '/dev/%s\n' "$name"
		;;
	esac
}

# namespace_device NAME: prints its name below /dev; in a dry run, {NAME} if it does not
# exist yet
namespace_device() {
	local dev
	dev=$(ndctl_namespace "$1" .blockdev)
	if [ -n "$dev" ]; then
		printf '%s\n' "$dev"
	elif [ "$DRY_RUN" -eq 1 ]; then
		printf '{%s}\n' "$1"
	else
		die "namespace $1 has no block device" "is it enabled? ndctl list -N -i -v"
	fi
}

is_mounted() { findmnt -rn -M "$1" >/dev/null 2>&1; }

# Does a server run on this data directory?
server_runs() {
	local pid
	pid=$(server_pid "$1")
	[ -n "$pid" ] && [ -d "/proc/$pid" ]
}
server_pid() {
	local pid
	[ -f "$1/postmaster.pid" ] || return 0
	pid=$(server_reads head -n 1 "$1/postmaster.pid" 2>/dev/null) || return 0
	! [[ $pid =~ ^[0-9]+$ ]] || printf '%s\n' "$pid"
}
