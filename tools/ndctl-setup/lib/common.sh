#!/bin/bash
# Shared by the verbs: messages, the state file, and the one way to change anything.
# Source it.  Set by the entry script: STATE_FILE, DRY_RUN, and the settings in CONFIG.

say() { [ "$JSON" -eq 1 ] || printf '%s\n' "$*"; }
note() { printf '%s\n' "$*" >&2; }
warn() { printf 'ndctl-setup: warning: %s\n' "$*" >&2; }

# die MESSAGE [HINT]...
die() {
	printf 'ndctl-setup: error: %s\n' "$1" >&2
	shift
	[ $# -eq 0 ] || printf 'hint: %s\n' "$@" >&2
	exit 1
}

# config NAME: one setting.  They are taken out of the JSON once: jq takes a while to start.
declare -A SETTINGS=()
config() { printf '%s\n' "${SETTINGS[$1]:-}"; }
load_config() {
	local name value
	CONFIG=$1
	while IFS=$'\t' read -r name value; do SETTINGS[$name]=$value; done < <(
		jq -r 'to_entries[] | select(.value != null and (.value | type | IN("array", "object") | not)) | "\(.key)\t\(.value)"' <<<"$CONFIG"
	)
}

# need COMMAND PACKAGE: stop if a program is missing.
need() { command -v "$1" >/dev/null || die "the program $1 is not there" "install the package $2"; }

new_uuid() { if [ "$DRY_RUN" -eq 1 ]; then echo NEW-UUID; else cat /proc/sys/kernel/random/uuid; fi; }

# ---------------------------------------------------------------- state file

# {version, name, config, records: [{key, undo, command, done}]}, oldest first.
state_read() { if [ -e "$STATE_FILE" ]; then cat "$STATE_FILE"; else echo '{"version": 1, "records": []}'; fi; }

# Once, before it is used.
state_check() {
	[ ! -e "$STATE_FILE" ] || jq -e '.version == 1 and (.records | type == "array")' "$STATE_FILE" >/dev/null 2>&1 ||
		die "the state file $STATE_FILE is damaged, or of another version" "it is needed to undo; do not remove it without need"
}

# One at a time; the lock goes with the process.
state_lock() {
	mkdir -p "$(dirname "$STATE_FILE")"
	exec 8>>"$STATE_FILE.lock"
	flock -n 8 || die "another ndctl-setup works on $STATE_FILE"
}

# Replace the state file, durably: it must not be older than what it describes.
state_write() {
	local new=$STATE_FILE.new
	mkdir -p "$(dirname "$STATE_FILE")"
	(umask 077 && cat >"$new")
	sync "$new"
	mv "$new" "$STATE_FILE"
	sync "$(dirname "$STATE_FILE")"
}

# state_put KEY UNDO COMMAND DONE: add the record, or replace the one with this key.
state_put() {
	local state
	state=$(state_read) # before it is replaced
	jq --arg key "$1" --argjson undo "$2" --arg command "$3" --argjson finished "$4" --argjson config "$CONFIG" '
		.config = $config
		| {key: $key, undo: $undo, command: $command, done: $finished} as $r
		| if any(.records[]; .key == $key)
		  then .records |= map(if .key == $key then $r + {undo: (.undo + $undo)} else . end)
		  else .records += [$r] end' <<<"$state" | state_write
}

state_drop() {
	local state
	state=$(state_read)
	jq --arg key "$1" '.records |= map(select(.key != $key))' <<<"$state" | state_write
}

# recorded KEY [FIELD]: what would be undone, nothing if there is no such record
recorded() {
	[ -e "$STATE_FILE" ] || return 0
	state_read | jq -r --arg key "$1" --arg f "${2:-}" '.records[] | select(.key == $key) | .undo | if $f == "" then tojson else .[$f] // empty end'
}

# ---------------------------------------------------------------- changes

# change KEY UNDO COMMAND...
#
# The only way in which anything is changed.  What has to be undone, a JSON
# object with a "kind" that lib/undo.sh knows, is recorded before the command
# runs, so that a run that is cut off can be repeated or undone.  Nothing is
# recorded for KEY "-": the command is part of the change before it.  With
# --dry-run the command is only collected, in COMMANDS.
COMMANDS=()
change() {
	local key=$1 undo=$2 text='' word
	shift 2
	for word in "$@"; do
		if [[ $word =~ ^[A-Za-z0-9_@%+=:,./{}-]+$ ]]; then text+=" $word"; else printf -v word '%q' "$word" && text+=" $word"; fi
	done
	text=${text# }
	if [ "$DRY_RUN" -eq 1 ]; then
		COMMANDS+=("$text")
		return 0
	fi
	note "    $text"
	[ "$key" = - ] || state_put "$key" "$undo" "$text" false
	"$@" </dev/null >&2 || die "this failed: $text" "mend what it complains of and run apply again, or take all back with undo"
	[ "$key" = - ] || state_put "$key" "$undo" "$text" true
}

# undo_object KIND NAME VALUE...: a JSON object of strings
undo_object() {
	local kind=$1
	shift
	[ "$DRY_RUN" -eq 0 ] || return 0
	jq -nc --arg kind "$kind" '{kind: $kind} + ([$ARGS.positional as $p | range(0; $p | length; 2) | {key: $p[.], value: $p[. + 1]}] | from_entries)' --args "$@"
}

# write_file PATH TEXT: install a file; called through change.
write_file() {
	mkdir -p "$(dirname "$1")"
	printf '%s\n' "$2" >"$1.ndctl-setup-new"
	chmod 644 "$1.ndctl-setup-new"
	mv "$1.ndctl-setup-new" "$1"
}

# add_line PATH LINE: append a line to a file; called through change.
add_line() {
	[ ! -s "$1" ] || [ -z "$(tail -c 1 "$1")" ] || echo >>"$1"
	printf '%s\n' "$2" >>"$1"
}

# Run as the server's user, which PostgreSQL's programs insist on.
server_command() {
	local user
	user=$(config user)
	if [ "$(id -un)" = "$user" ]; then printf '%s\n' "$@"; else printf '%s\n' setpriv --reuid "$user" --regid "$(server_group)" --init-groups -- "$@"; fi
}

server_group() { id -gn "$(config user)" 2>/dev/null || config user; }

as_server() {
	local command
	mapfile -t command < <(server_command "$@")
	"${command[@]}"
}

program() { # program NAME: of the server's, with its path
	local bindir
	bindir=$(config bindir)
	if [ -n "$bindir" ]; then printf '%s/%s\n' "${bindir%/}" "$1"; else command -v "$1" || echo "$1"; fi
}

# ---------------------------------------------------------------- what is where

# ndctl_namespace NAME: the namespace that we recorded under this name, as ndctl shows it
ndctl_namespace() {
	local record
	record=$(recorded "namespace:$1")
	[ -n "$record" ] || return 0
	ndctl list -N -i -v 2>/dev/null | jq -c --argjson r "$record" '
		if type == "array" then .[] else . end
		| select(([.uuid, .raw_uuid] | any(. != null and (. == $r.uuid or . == $r.found_uuid)))
			or ($r.via == "adopt" and .dev == $r.dev))' | head -n 1
}

# device_of WHAT: "ns:NAME" or "lv:VG/LV" to a path
device_of() {
	local name=${1#*:} dev
	case $1 in
	lv:*) printf '/dev/%s\n' "$name" ;;
	ns:*)
		dev=$(ndctl_namespace "$name" | jq -r '.blockdev // empty')
		if [ -n "$dev" ]; then
			printf '/dev/%s\n' "$dev"
		elif [ "$DRY_RUN" -eq 1 ]; then
			printf '/dev/{%s}\n' "$name"
		else
			die "namespace $name has no block device" "is it enabled? ndctl list -N -i"
		fi
		;;
	esac
}

is_mounted() { findmnt -rn -M "$1" >/dev/null 2>&1; }

# Does a server run on this data directory?
server_runs() {
	local pid
	[ -e "$1/postmaster.pid" ] || return 1
	pid=$(head -n 1 "$1/postmaster.pid")
	[ -n "$pid" ] && [ -d "/proc/$pid" ]
}
