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
dax_json() { json_of daxctl list -D -R -i; }

# Who has a dax device open or mapped: {"dax0.0": ["512 (qemu-system-x86)"]}.
# Another driver takes the memory away from them (SIGBUS).
dax_users() {
	local line pid dev name all=''
	while IFS= read -r line; do
		[[ ${line#"$PROC"/} =~ ^([0-9]+)/.*:/dev/(dax[0-9]+\.[0-9]+) ]] || continue
		pid=${BASH_REMATCH[1]} dev=${BASH_REMATCH[2]}
		name=$(cat "$PROC/$pid/comm" 2>/dev/null) || name='?'
		all+="$dev $pid (${name//[[:cntrl:]]/?})"$'\n'
	done < <(
		# Processes come and go meanwhile.
		grep -sHoE '/dev/dax[0-9]+\.[0-9]+' "$PROC"/[0-9]*/maps || true
		find "$PROC"/[0-9]*/fd -mindepth 1 -maxdepth 1 -lname '/dev/dax*' -printf '%p:%l\n' 2>/dev/null || true
	)
	jq -nc --arg all "$all" '[$all | split("\n")[] | select(. != "") | capture("^(?<dev>[^ ]+) (?<who>.*)$")]
		| unique | group_by(.dev) | map({key: .[0].dev, value: [.[].who]}) | from_entries'
}

# The dax devices, as lib/dax.jq has them, and how each one is "now"
dax_devices() {
	local dax list users
	dax=$(dax_json) || exit 1
	list=$(ndctl_json list -B -R -N -i -v) || exit 1
	users=$(dax_users) || exit 1
	jq -L "$LIB" -nc --argjson dax "$dax" --argjson list "$list" --argjson users "$users" \
		'include "dax"; all_devices($dax; $list; $users) | map(. + {now: now})'
}

# Those that we recorded: [{record, device}], oldest first
our_dax_devices() {
	local devices
	devices=$(dax_devices) || exit 1
	jq -L "$LIB" -nc --argjson devices "$devices" --argjson state "$(state_read)" \
		'include "dax"; found([$state.records[] | select(.undo.kind == "dax") | .undo + {key}]; $devices)'
}

# NUMA nodes with memory, in bytes, and whether they have CPUs: {"2": {cpus, total, free}}
nodes() {
	local dir line number total free all='{}'
	for dir in "$SYS"/devices/system/node/node[0-9]*; do
		[ -e "$dir/meminfo" ] || continue
		total=0 free=0
		while read -r line; do
			[[ $line =~ \ (MemTotal|MemFree):\ +([0-9]+)\ kB ]] || continue
			number=$((BASH_REMATCH[2] * 1024))
			if [ "${BASH_REMATCH[1]}" = MemTotal ]; then total=$number; else free=$number; fi
		done <"$dir/meminfo"
		all=$(jq -c --arg node "${dir##*/node}" --arg cpus "$(cat "$dir/cpulist")" --argjson total "$total" --argjson free "$free" \
			'.[$node] = {cpus: ($cpus != ""), $total, $free}' <<<"$all")
	done
	printf '%s\n' "$all"
}

# What profile memory-tier asks for: dax devices, their users, nodes, and how the kernel adds memory
dax_inventory() {
	local dax users all block memmap
	need daxctl daxctl
	dax=$(dax_json) || exit 1
	users=$(dax_users) || exit 1
	all=$(nodes) || exit 1
	block=$(cat "$SYS/devices/system/memory/block_size_bytes" 2>/dev/null) ||
		die "there is no $SYS/devices/system/memory/block_size_bytes" "this kernel can't take memory while it runs (CONFIG_MEMORY_HOTPLUG)"
	memmap=$(cat "$SYS/module/memory_hotplug/parameters/memmap_on_memory" 2>/dev/null) || memmap=N
	jq -nc --argjson dax "$dax" --argjson users "$users" --argjson nodes "$all" --argjson block $((16#$block)) --arg memmap "$memmap" \
		'{$dax, dax_users: $users, $nodes, memory_block: $block, memmap_on_memory: ($memmap | test("^(Y|y|1|force)"))}'
}

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
	local list labels devs block running=false selinux=false version='' memory cmdline tier='{}'
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
	if [ "${SETTINGS[profile]:-}" = memory-tier ]; then tier=$(dax_inventory) || exit 1; fi
	cmdline=$(cat "$PROC/cmdline") || exit 1
	json_string "$version" && version=$JSON_TEXT
	json_string "$cmdline" && cmdline=$JSON_TEXT
	printf '{"ndctl": %s, "labels": %s, "block": %s, "cmdline": %s, "memory_total": %s, "selinux": %s, "cluster": {"version": %s, "running": %s}%s' \
		"$list" "$labels" "$block" "$cmdline" "$memory" "$selinux" "$version" "$running" "$([ "$tier" = '{}' ] || echo ', ')"
	# The rest of the object
	printf '%s\n' "${tier#\{}"
}
