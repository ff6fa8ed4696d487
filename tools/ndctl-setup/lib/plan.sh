#!/bin/bash
# plan: say what apply would do, step by step, and change nothing.

# The plan without its commands.
make_plan() {
	local all before
	before=''
	[ ! -e "$STATE_FILE" ] || before=$(jq -r '.config.profile // empty' "$STATE_FILE")
	[ -z "$before" ] || [ "$before" = "${SETTINGS[profile]:-}" ] ||
		die "${SETTINGS[name]:-} is set up with profile $before" "undo first, or choose another --name"
	all=$(inventory) || exit 1
	printf '{"config": %s, "inventory": %s, "state": %s}' "$CONFIG" "$all" "$(state_read)" | jq -L "$LIB" -f "$LIB/plan.jq"
}

# The plan with the commands of each step, as the steps themselves give them, once these
# are loaded.
plan_with_commands() {
	local plan=$1 n command text=''
	for ((n = 1; n <= STEPS; n++)); do
		COMMANDS=()
		run_step "$n"
		# Quoted as they are, no command has a line end.
		for command in "${COMMANDS[@]}"; do text+="$n $command"$'\n'; done
	done
	jq --arg text "$text" '
		[$text | split("\n")[] | select(. != "") | capture("^(?<i>[0-9]+) (?<command>.*)$")] as $all
		| .steps |= map(.n as $n | . + {commands: [$all[] | select(.i == ($n | tostring)) | .command]})' <<<"$plan"
}

print_plan() {
	jq -r '
	def human:
		if . >= 1073741824 and . % 1073741824 == 0 then "\(. / 1073741824) GiB"
		else "\(. / 1048576 | floor) MiB" end;
	def pad($n): . + (" " * ([$n - length, 0] | max));
	def node: "node \(if . < 0 then "unknown" else . end)";
	"profile \(.profile), name \(.name)",
	"",
	(if (.regions | length) == 0 then "persistent memory: none" else
	 "persistent memory:",
	 (.regions[] | "  \(.dev | pad(10)) \(.size | human | pad(12)) free \(.free | human | pad(12)) \(.numa_node | node)  \(.provider), \(if (.dimms | length) > 0 then (.dimms | join(" ")) else "no DIMMs" end), survives power loss: \(.power_safe)",
	  (.occupants[] | "             \(.message)"),
	  (.faults[] | "             not used: \(.message)"),
	  (.concerns[] | "             \(.message)")) end),
	(if (.refusals | length) > 0 then "", "refused:", (.refusals[] | "  \(.message)", (select(.hint != null) | "      hint: \(.hint)")) else empty end),
	(if (.warnings | length) > 0 then "", "warnings:", (.warnings[] | "  \(.message)", (select(.command != null) | "      see: \(.command)")) else empty end),
	(if .ok then
	 "",
	 "what lies where:",
	 (.places[] | "  \(.name | pad(14)) \(.mode | pad(7)) \(.size | human | pad(12)) \(.region) (\(if (.dimms | length) > 0 then .dimms | join(" ") else "no DIMMs" end), \(.numa_node | node))\(if .present then ", there already" else "" end)"),
	 "  pool           \(.cache.kind | pad(7)) \(.cache.size | human | pad(12)) \(.cache.directory)",
	 (select(.wal_directory != null) | "  pg_wal         \(.wal_directory)"),
	 (select(.data_directory != null) | "  data directory \(.data_directory)"),
	 "",
	 "steps:",
	 (.steps[] | "  \(.n). \(.kind)\(if .device != null then " on " + .device elif .name != null then " " + .name else "" end)\(if (.commands | length) == 0 then ": nothing to do" else "" end)",
	  (.commands[] | "      " + .)),
	 "",
	 "postgresql.conf:",
	 (.conf[] | "  " + .),
	 (if (.notes | length) > 0 then "", "notes:", (.notes[] | "  " + .) else empty end)
	 else empty end)' <<<"$1"
}

verb_plan() {
	local plan
	# shellcheck disable=SC2034 # for change() and the steps
	DRY_RUN=1
	plan=$(make_plan)
	# shellcheck disable=SC2034
	PLAN=$plan
	load_steps "$plan"
	plan=$(plan_with_commands "$plan")
	if [ "$JSON" -eq 1 ]; then printf '%s\n' "$plan"; else print_plan "$plan"; fi
	[ "${FIELDS[0.ok]}" = true ] || exit 2
}
