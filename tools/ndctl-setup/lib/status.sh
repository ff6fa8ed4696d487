#!/bin/bash
# status: how what apply set up is now, with the command that mends each trouble.

# Which part of a file lies such that it can be mapped with 2 MiB pages: JSON
alignment_of() {
	local file=$1 out
	out=$(server_reads filefrag -e -b4096 "$file" 2>/dev/null) || out=''
	# Extents as "  0:        0..    8191:      33792..     41983:   8192:"
	jq -nc --arg file "$file" --arg path "$(readlink -f "$file")" --arg out "$out" '
		[$out | split("\n")[] | capture("^ *[0-9]+: +(?<l>[0-9]+)\\.\\. *[0-9]+: +(?<p>[0-9]+)\\.\\. *[0-9]+: +(?<n>[0-9]+):") | map_values(tonumber)]
		| . as $e
		| ([$e[] | select(.l % 512 == .p % 512) | ((.n + .l % 512 - (if .l % 512 == 0 then 0 else 512 end)) / 512 | floor) | select(. > 0)] | add // 0) as $huge
		| ([$e[].n] | add // 0) as $blocks
		| {file: $file, path: $path, extents: ($e | length), bytes: ($blocks * 4096),
		   huge_pages: $huge, possible: ($blocks / 512 | floor)}'
}

mount_state() {
	local where=$1 dax=$2 found
	found=$(findmnt -rn -M "$where" -o SOURCE,FSTYPE,OPTIONS 2>/dev/null | head -n 1)
	jq -nc --arg where "$where" --argjson dax "$dax" --arg found "$found" '
		($found | split(" ")) as $f
		| {where: $where, mounted: ($found != ""), device: ($f[0] // ""), type: ($f[1] // ""), wants_dax: $dax,
		   dax: (($f[2] // "") | split(",") | any(. == "dax" or . == "dax=always"))}'
}

mirror_state() {
	local out
	out=$(lvs --reportformat json -o vg_name,lv_name,copy_percent,lv_health_status,raid_sync_action "$1" 2>/dev/null) || out=''
	jq -nc --arg lv "$1" --arg out "$out" '
		($out | if . == "" then null else fromjson.report[0].lv[0] end) as $l
		| {lv: $lv, there: ($l != null), in_sync: ($l.copy_percent // ""), health: ($l.lv_health_status // ""),
		   missing: (($l.lv_health_status // "") | test("partial")), action: ($l.raid_sync_action // "")}'
}

verb_status() {
	local state mounts='[]' mirrors='[]' files='[]' step f result list pgdata
	[ -e "$STATE_FILE" ] || die "nothing was set up under the name ${SETTINGS[name]:-}: there is no $STATE_FILE" "ndctl-setup apply --profile=..."
	state=$(state_read)
	load_config .config "$STATE_FILE"
	list=$(ndctl_json list -B -D -H -R -N -M -i -v) || exit 1
	while IFS= read -r step; do
		mounts=$(jq -c --argjson m "$(mount_state "$(jq -r .where <<<"$step")" "$(jq .dax <<<"$step")")" '. + [$m]' <<<"$mounts")
	done < <(jq -c '.records[].undo | select(.kind == "mount") | {where, dax: (.dax == "true")}' <<<"$state")
	while IFS= read -r f; do
		mirrors=$(jq -c --argjson m "$(mirror_state "$f")" '. + [$m]' <<<"$mirrors")
	done < <(jq -r '.records[].undo | select(.kind == "lv") | "\(.vg)/\(.lv)"' <<<"$state")
	pgdata=${SETTINGS[pgdata]:-}
	while IFS= read -r f; do
		[ -e "$f" ] || continue
		files=$(jq -c --argjson a "$(alignment_of "$f")" '. + [$a]' <<<"$files")
	done < <(
		jq -r '.records[].undo | select(.kind == "pool") | .directory + "/pool"' <<<"$state"
		server_reads find "$pgdata/pg_wal/" -maxdepth 1 -type f -regex '.*/[0-9A-F]+' -name '????????????????????????' 2>/dev/null | sort | head -n 4
	)
	result=$(jq -n --argjson state "$state" --argjson list "$list" --argjson mounts "$mounts" --argjson mirrors "$mirrors" --argjson files "$files" \
		--argjson node "$(server_node "$pgdata")" '
		[$state.records[].undo | select(.kind == "namespace")] as $ours
		| [$list[] | .dimms as $d | .regions[]? | . as $r | .namespaces[]? | . as $n
		   | $ours[] | . as $o
		   | select(([$n.uuid, $n.raw_uuid] | any(. != null and (. == $o.uuid or . == $o.found_uuid))) or ($o.via == "adopt" and $o.dev == $n.dev))
		   | {name: $o.name, dev: $n.dev, mode: $n.mode, size: $n.size, region: $r.dev, numa_node: ($r.numa_node // -1),
		      enabled: ($n.state != "disabled" and $n.blockdev != null), blockdev: ($n.blockdev // null),
		      bad_blocks: ($n.badblock_count // 0), region_bad_blocks: ($r.badblock_count // 0),
		      domain: ($r.persistence_domain // "unknown"), dimms: [$r.mappings[]?.dimm]}] as $ns
		# Also of a region that is disabled, and shows no namespaces.
		| ([$ns[].dimms[], ($list[].regions[]? | select(.dev as $d | any($ours[]; .region == $d)) | .mappings[]?.dimm)] | unique) as $used
		| [$list[].regions[]? | select(.state == "disabled" and (.dev as $d | any($ours[]; .region == $d))) | .dev] as $disabled
		| [$list[] | .dimms[]? | select(.dev as $d | $used | index($d) != null)
		   | {dev, id, health: (.health.health_state // "unknown"), unsafe_shutdowns: (.health.shutdown_count // null),
		      state: (.state // "enabled"), security: (.security // "unknown"),
		      alarms: [.health // {} | to_entries[] | select((.key | startswith("alarm_")) and (.key | startswith("alarm_enabled") | not) and .value == true) | .key],
		      last_shutdown: (.health.shutdown_state // null), media_temperature: (.health.temperature_celsius // null),
		      flags: [to_entries[] | select((.key | startswith("flag_")) and .value == true) | .key | ltrimstr("flag_")]}] as $dimms
		| ([$ours[].name] - [$ns[].name]) as $gone
		| {name: $state.config.name, profile: $state.config.profile, namespaces: $ns, dimms: $dimms, mounts: $mounts, mirrors: $mirrors, files: $files,
		   unfinished: [$state.records[] | select(.done | not) | .key],
		   warnings: (
		   [$gone[] | {code: "namespace-gone", message: "namespace \(.) is not there", command: "ndctl list -N -D -i"}]
		   + [$ns[] | select(.enabled | not) | {code: "namespace-disabled", message: "namespace \(.name) is not enabled", command: "ndctl enable-namespace \(.dev)"}]
		   + [$ns[] | select(.bad_blocks > 0) | {code: "bad-blocks", message: "\(.name) has \(.bad_blocks) bad blocks",
		       command: (if .mode == "fsdax" then "stop the server, then: pg_pcache rebuild (the pool), or restore the file (WAL)" else "lvchange --syncaction repair VG/LV" end)}]
		   + [$disabled[] | {code: "region-disabled", message: "region \(.) is disabled", command: "ndctl enable-region \(.)"}]
		   + [$dimms[] | select(.security == "locked") | {code: "dimm-locked", message: "DIMM \(.dev) is locked", command: "ndctl load-keys, then: ndctl enable-dimm \(.dev)"}]
		   + [$dimms[] | select(.state == "disabled" and .security != "locked") | {code: "dimm-disabled", message: "DIMM \(.dev) is disabled", command: "ndctl enable-dimm \(.dev)"}]
		   + [$dimms[] | select(.alarms | length > 0) | {code: "dimm-alarm", message: "DIMM \(.dev): \(.alarms | join(", "))", command: "ndctl list -D -H -d \(.dev)"}]
		   + [$dimms[] | select(.flags | length > 0) | {code: "dimm-flags", message: "DIMM \(.dev): \(.flags | join(", "))", command: "ndctl list -D -H -d \(.dev)"}]
		   + [$dimms[] | select(.health | IN("ok", "unknown") | not) | {code: "dimm-health", message: "DIMM \(.dev) is \(.health)", command: "ndctl list -D -H -d \(.dev)"}]
		   + [$dimms[] | select(.last_shutdown == "dirty") | {code: "unsafe-shutdown", message: "DIMM \(.dev) was not shut down safely (\(.unsafe_shutdowns) times so far)", command: "pg_pcache verify"}]
		   + [$mounts[] | select(.mounted | not) | {code: "not-mounted", message: "\(.where) is not mounted", command: "mount \(.where)"}]
		   + [$mounts[] | select(.mounted and .wants_dax and (.dax | not)) | {code: "no-dax", message: "\(.where) is mounted without DAX", command: "umount \(.where) && mount \(.where)"}]
		   + [$mirrors[] | select(.there | not) | {code: "mirror-gone", message: "\(.lv) is not there", command: "vgchange -ay \(.lv | split("/")[0])"}]
		   + [$mirrors[] | select(.missing) | {code: "mirror-half-gone", message: "one half of \(.lv) is missing", command: "replace the DIMM, create the namespace again, then: vgextend \(.lv | split("/")[0]) DEVICE && lvconvert --repair -y \(.lv)"}]
		   + [$mirrors[] | select(.there and (.missing | not) and .health != "") | {code: "mirror-health", message: "\(.lv): \(.health)", command: "lvchange --refresh \(.lv)"}]
		   + [$mirrors[] | select(.there and .in_sync != "" and (.in_sync | tonumber) < 100) | {code: "mirror-sync", message: "\(.lv) is \(.in_sync) % in sync", command: "lvs -o+raid_sync_action \(.lv)"}]
		   + [$files[] | .path as $path | select(any($mounts[]; (.where + "/") as $under | .dax and ($path | startswith($under))))
		      | select(.possible > 0 and .huge_pages * 10 < .possible * (if .file | endswith("/pool") then 9 else 5 end)) | {code: "alignment", message: "\(.file): \(.huge_pages) of \(.possible) parts of 2 MiB can be mapped with huge pages", command: "filefrag -v \(.file)"}]
		   + [$ns[] | select($node >= 0 and .numa_node >= 0 and .numa_node != $node and (.name | endswith("-cache"))) | {code: "numa", message: "the cache is on NUMA node \(.numa_node), the server runs on \($node)", command: "NUMAPolicy=bind and NUMAMask=\(.numa_node) in the unit of the server, or: numactl --membind=\(.numa_node) --cpunodebind=\(.numa_node)"}]
		   + [$state.records[] | select(.done | not) | {code: "unfinished", message: "not finished: \(.key)", command: "ndctl-setup apply"}])}')
	if [ "$JSON" -eq 1 ]; then
		printf '%s\n' "$result"
	else
		jq -r '
		def mib: "\(. / 1048576 | floor) MiB";
		"\(.name), profile \(.profile)",
		(.namespaces[] | "  namespace  \(.name): \(.dev), \(.mode), \(.size | mib), \(.region), node \(.numa_node), \(.bad_blocks) bad blocks, \(.dimms | join(" "))"),
		(.dimms[] | "  DIMM       \(.dev): health \(.health), unsafe shutdowns \(.unsafe_shutdowns // "unknown")\(if (.flags | length) > 0 then ", " + (.flags | join(" ")) else "" end)"),
		(.mounts[] | "  mount      \(.where): \(if .mounted then "\(.device), \(.type)\(if .dax then ", DAX" else "" end)" else "not mounted" end)"),
		(.mirrors[] | "  mirror     \(.lv): \(if .there then "\(.in_sync) % in sync\(if .health != "" then ", " + .health else "" end)" else "not there" end)"),
		(.files[] | "  file       \(.file): \(.bytes | mib), \(.extents) extents, \(.huge_pages) of \(.possible) huge pages"),
		(if (.warnings | length) == 0 then "no warnings" else (.warnings[] | "warning: \(.message)\n    \(.command)") end)' <<<"$result"
	fi
	jq -e '.warnings | length == 0' <<<"$result" >/dev/null || exit 3
}

# The NUMA node that the server's postmaster is bound to, -1 if none or unknown.
server_node() {
	local pid nodes
	if ! server_runs "$1"; then
		echo -1
		return
	fi
	pid=$(server_pid "$1")
	nodes=$(sed -n 's/^Mems_allowed_list:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null)
	if [[ $nodes =~ ^[0-9]+$ ]] && [ "$(find /sys/devices/system/node -maxdepth 1 -name 'node[0-9]*' 2>/dev/null | wc -l)" -gt 1 ]; then echo "$nodes"; else echo -1; fi
}
