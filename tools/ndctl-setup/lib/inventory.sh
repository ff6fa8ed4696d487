#!/bin/bash
# What there is: one JSON object for lib/plan.jq, made of what other programs say.
# Reads only.

# ndctl_json ARGUMENT...: an array, empty if there is no persistent memory
ndctl_json() {
	local out
	if ! command -v ndctl >/dev/null; then
		echo '[]'
		return
	fi
	out=$(ndctl "$@" 2>/dev/null) || true
	[ -n "$out" ] || out='[]'
	jq -ce 'if type == "array" then . else [.] end' <<<"$out" 2>/dev/null ||
		die "ndctl $* does not print JSON" "run it by hand to see what is wrong"
}

# Signatures, holders and mounts of each namespace's disk.
block_contents() {
	local dev text tree all='{}'
	for dev in "$@"; do
		# Offsets, UUIDs, labels and types, as comma-separated lines.
		text=$(wipefs --parsable --no-act "$dev" 2>/dev/null) || text=''
		tree=$(lsblk -J -o NAME,PATH,TYPE,MOUNTPOINT "$dev" 2>/dev/null) || tree='{}'
		all=$(jq -c --arg dev "$dev" --arg text "$text" --argjson tree "$tree" '
			def below: .children[]? | ., below;
			.[$dev] = {
				signatures: [$text | split("\n")[] | select(. != "" and (startswith("#") | not)) | split(",")
					| {type: .[3], uuid: .[1], usage: (if .[3] | IN("dos", "gpt", "PMBR") then "pttable" else "" end)}],
				holders: [$tree.blockdevices[]? | below | .path],
				mountpoints: [$tree.blockdevices[]? | ., below | .mountpoint | select(. != null)]}' <<<"$all")
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
	local list labels devs block running=false selinux=false version='' memory
	list=$(ndctl_json list -B -D -H -R -N -M -i -v) || exit 1
	labels=$(ndctl_json read-labels -j all) || exit 1
	mapfile -t devs < <(jq -r '.[].regions[]?.namespaces[]?.blockdev // empty | "/dev/" + .' <<<"$list" | sort)
	block=$(block_contents "${devs[@]}")
	if [ -f "$(config pgdata)/PG_VERSION" ]; then
		version=$(server_reads head -c 16 "$(config pgdata)/PG_VERSION" 2>/dev/null) || version=''
		if server_runs "$(config pgdata)"; then running=true; fi
	fi
	if selinuxenabled 2>/dev/null; then selinux=true; fi
	memory=$(memory_total) || exit 1
	jq -n --argjson ndctl "$list" --argjson labels "$labels" --argjson block "$block" \
		--arg cmdline "$(cat "$PROC/cmdline")" \
		--argjson memory "$memory" \
		--arg version "$version" --argjson running "$running" --argjson selinux "$selinux" '
		{ndctl: $ndctl, labels: $labels, block: $block, cmdline: $cmdline, memory_total: $memory,
		 selinux: $selinux, cluster: {version: $version, running: $running}}'
}
