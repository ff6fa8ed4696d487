#!/bin/bash
# What there is: one JSON object for lib/plan.jq, made of what other programs say.
# Reads only.

# json_of PROGRAM ARGUMENT...: an array, empty if it prints nothing, or is not there
json_of() {
	local out
	if ! command -v "$1" >/dev/null; then
		echo '[]'
		return
	fi
	out=$("$@" 2>/dev/null) || true
	[ -n "$out" ] || out='[]'
	jq -ce 'if type == "array" then . else [.] end' <<<"$out" 2>/dev/null ||
		die "$* does not print JSON" "run it by hand to see what is wrong"
}
ndctl_json() { json_of ndctl "$@"; }

# Signatures, holders and mounts of each namespace's disk.
block_contents() {
	local dev text tree all='{}'
	for dev in "$@"; do
		# Offsets, UUIDs, labels and types, as comma-separated lines.
		text=$(wipefs --parsable --no-act "$dev" 2>/dev/null) || text=''
		# The column PATH is not known to all versions; with -p, NAME is the path.  Of what
		# is disabled there is no device.
		tree=$(lsblk -J -p -o NAME,TYPE,MOUNTPOINT "$dev" 2>/dev/null) ||
			if [ -b "$dev" ]; then die "lsblk does not tell what is on $dev" "run it by hand to see what is wrong: lsblk -J -p $dev"; else tree='{}'; fi
		all=$(jq -c --arg dev "$dev" --arg text "$text" --argjson tree "$tree" '
			def below: .children[]? | ., below;
			.[$dev] = {
				signatures: [$text | split("\n")[] | select(. != "" and (startswith("#") | not)) | split(",")
					| {type: .[3], uuid: .[1], usage: (if .[3] | IN("dos", "gpt", "PMBR") then "pttable" else "" end)}],
				holders: [$tree.blockdevices[]? | below | .name],
				mountpoints: [$tree.blockdevices[]? | ., below | .mountpoint | select(. != null)]}' <<<"$all") || return 1
	done
	printf '%s\n' "$all"
}

# Of the host, in bytes.  In the shell: some awks print no number above 2^31.
memory_total() {
	local name value
	while read -r name value _; do
		[ "$name" != MemTotal: ] || { echo $((value * 1024)) && return 0; }
	done <"$PROC/meminfo"
	die "$PROC/meminfo has no line MemTotal"
}

inventory() {
	local list labels devs block running=false selinux=false version='' memory cmdline
	list=$(ndctl_json list -B -D -H -R -N -M -i -v) || exit 1
	labels=$(ndctl_json read-labels -j all) || exit 1
	mapfile -t devs < <({ grep -oE '"blockdev":"[^"]+"' <<<"$list" || true; } | sed 's,.*:",/dev/,; s,"$,,' | sort)
	block=$(block_contents "${devs[@]}") || exit 1
	if [ -f "${SETTINGS[pgdata]:-}/PG_VERSION" ]; then
		version=$(server_reads head -c 16 "${SETTINGS[pgdata]:-}/PG_VERSION" 2>/dev/null) || version=''
		if server_runs "${SETTINGS[pgdata]:-}"; then running=true; fi
	fi
	if selinuxenabled 2>/dev/null; then selinux=true; fi
	memory=$(memory_total) || exit 1
	cmdline=$(cat "$PROC/cmdline") || exit 1
	json_string "$version" && version=$JSON_TEXT
	json_string "$cmdline" && cmdline=$JSON_TEXT
	printf '{"ndctl": %s, "labels": %s, "block": %s, "cmdline": %s, "memory_total": %s, "selinux": %s, "cluster": {"version": %s, "running": %s}}\n' \
		"$list" "$labels" "$block" "$cmdline" "$memory" "$selinux" "$version" "$running"
}
