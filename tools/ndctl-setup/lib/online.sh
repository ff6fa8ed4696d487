#!/bin/bash
# online: what the unit of profile memory-tier runs at boot, before the mount.
# Makes the dax devices of the state file memory, and changes nothing else.  Fails
# if one is not there, or on another node: then the server does not start, rather
# than with a pool in other memory.

verb_online() {
	local found dev name now node want before users
	[ "$(id -u)" -eq 0 ] || die "online must be run by root"
	[ -e "$STATE_FILE" ] || die "nothing was set up under the name ${SETTINGS[name]:-}: there is no $STATE_FILE" "ndctl-setup apply --profile=memory-tier ..."
	load_config .config "$STATE_FILE"
	jq -e 'any(.records[]; .undo.kind == "dax")' "$STATE_FILE" >/dev/null ||
		die "${SETTINGS[name]:-} is set up with profile ${SETTINGS[profile]:-}, which has no dax devices" "ndctl-setup status shows what it has"
	need daxctl daxctl
	found=$(wait_for_dax) || exit 1
	# Nothing is changed if one of them is not as it should be.
	while IFS=$'\t' read -r name dev now node want before users; do
		[ "$dev" != null ] || die "$name is not there: no dax device has its UUID, or its size on node $want" \
			"daxctl list -D -R -i shows what there is; if it is to be another one: ndctl-setup undo, then apply"
		[ "$node" = "$want" ] || die "$dev is on node $node, and the cache's mount is bound to node $want" "ndctl-setup undo, then apply: nodes have other numbers now"
		[ "$now" != devdax ] || [ -z "$users" ] || die "$dev is open in process $users" "its memory can't be taken away from it"
	done <<<"$found"
	while IFS=$'\t' read -r name dev now node want before users; do
		case $now in
		devdax) as_movable_memory "$dev" ;;
		offline) daxctl online-memory "$dev" </dev/null >&2 ;;
		partly) [ "$before" = partly ] || daxctl online-memory "$dev" </dev/null >&2 ;;
		esac || die "daxctl could not make $dev memory" "the kernel's messages (dmesg) tell more"
		check_dax "$dev" "$want" "$before"
		say "$dev is memory of node $want"
	done <<<"$found"
}

# RECORDED-NAME DEVICE STATE NODE RECORDED-NODE BEFORE USERS for each record, once all are
# there or the time is up: at boot the drivers may still be looking for devices.
wait_for_dax() {
	local end=$((SECONDS + ${NDCTL_SETUP_WAIT:-60})) all
	while :; do
		all=$(our_dax_devices) || exit 1
		if jq -e 'all(.[]; .device != null)' <<<"$all" >/dev/null || [ $SECONDS -ge $end ]; then break; fi
		sleep 1
	done
	jq -r '.[] | [.record.dev, .device.dev // "null", .device.now // "-", .device.node // "-", .record.node, .record.before,
		(.device.users // [] | join(", "))] | @tsv' <<<"$all"
}

# As step_system_ram does it, but the state file is not touched.
as_movable_memory() (
	local policy_file policy
	policy_file=$SYS/devices/system/memory/auto_online_blocks
	policy=$(online_policy)
	case $policy in
	offline) daxctl reconfigure-device --mode=system-ram "$1" </dev/null >&2 ;;
	online_movable) daxctl reconfigure-device --mode=system-ram --force "$1" </dev/null >&2 ;;
	*)
		trap 'set_value "$policy_file" "$policy"' EXIT
		trap 'exit 1' INT TERM HUP
		set_value "$policy_file" online_movable &&
			daxctl reconfigure-device --mode=system-ram --force "$1" </dev/null >&2
		;;
	esac
)
