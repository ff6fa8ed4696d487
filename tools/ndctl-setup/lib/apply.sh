#!/bin/bash
# apply: the steps.  Each one looks first at what is there, and changes only
# what is not as wanted, always through change(); so a run that failed can be
# repeated, and the plan shows what is left to do.

verb_apply() {
	local plan n
	if [ "$DRY_RUN" -eq 1 ]; then
		verb_plan
		return
	fi
	[ "$(id -u)" -eq 0 ] || die "apply must be run by root"
	state_lock
	check_user
	require_trusted "${SETTINGS[mount_root]:-}" "--mount-root=DIR names another directory"
	require_trusted "$ETC" "only root should be able to change what is there"
	if [ -n "${SETTINGS[keep_over_reboot]:-}" ]; then require_trusted_template; fi
	if [ "${SETTINGS[boot]:-}" = systemd ]; then
		require_trusted "${SETTINGS[unit_dir]:-}" "--unit-dir=DIR names another directory"
	fi
	plan=$(make_plan)
	PLAN=$plan
	load_steps "$plan"
	if [ "${FIELDS[0.ok]}" != true ]; then
		if [ "$JSON" -eq 1 ]; then printf '%s\n' "$plan"; else print_plan "$(jq '.steps = []' <<<"$plan")"; fi
		note "nothing was changed"
		exit 2
	fi
	jq -r '.warnings[].message' <<<"$plan" | while IFS= read -r w; do warn "$w"; done
	for ((n = 1; n <= STEPS; n++)); do
		STEP=$n
		note "==> $(title)"
		run_step "$n"
	done
	if [ "$JSON" -eq 1 ]; then jq '. + {applied: true}' <<<"$plan"; fi
	say "done; \"ndctl-setup status\" shows how it is, \"ndctl-setup undo\" takes it back"
	if [ -z "${SETTINGS[write_conf]:-}" ]; then
		say "" "put this into postgresql.conf:" ""
		conf_lines "$plan" | while IFS= read -r line; do say "    $line"; done
	fi
	jq -r '.notes[]' <<<"$plan" | while IFS= read -r line; do say "" "note: $line"; done
}

# The steps of the plan, taken out of the JSON once: jq takes a while to start.  Field "ok"
# of step 0 tells whether there are any.
declare -A FIELDS=()
STEPS=0 STEP=0
load_steps() { # PLAN
	local n name value
	FIELDS=() STEPS=0
	while IFS=$'\t' read -r n name value; do
		FIELDS[$n.$name]=$value
		STEPS=$n
	done < <(jq -r '"0\tok\t\(.ok)", (.steps[] | .n as $n | to_entries[] | select(.value != null)
		| "\($n)\t\(.key)\t\(.value | if type == "array" then join("\u001f") else tostring end)")' <<<"$1")
}

# get_list FIELD: of the step at hand, one a line
get_list() { [ -z "${FIELDS[$STEP.$1]:-}" ] || tr '\037' '\n' <<<"${FIELDS[$STEP.$1]}"; }

title() {
	local object
	object=${FIELDS[$STEP.device]:-}
	[ -n "$object" ] || object=${FIELDS[$STEP.name]:-}
	printf '%s. %s%s\n' "$STEP" "${FIELDS[$STEP.kind]:-}" "${object:+ on $object}"
}

# run_step N: call the function for its kind.
run_step() {
	STEP=$1
	case ${FIELDS[$STEP.kind]:-} in
	destroy) step_destroy ;;
	destroy-labels) step_destroy_labels ;;
	init-labels) step_init_labels ;;
	namespace) step_namespace ;;
	mirror) step_mirror ;;
	filesystem) step_filesystem ;;
	mount) step_mount ;;
	memory-mount) step_memory_mount ;;
	directory) step_directory "${FIELDS[$STEP.path]:-}" ;;
	cluster) step_cluster ;;
	check-map-sync) step_check_map_sync ;;
	pool) step_pool ;;
	boot) step_boot ;;
	keep) step_keep ;;
	conf) step_conf ;;
	*) die "unknown step \"${FIELDS[$STEP.kind]:-}\"" ;;
	esac
}

# ---------------------------------------------------------------- what was named in --force-destroy

step_destroy() {
	local dev vg where
	dev=${FIELDS[$STEP.blockdev]:-}
	dev=${dev:+/dev/$dev}
	while IFS= read -r where; do
		! is_mounted "$where" || change - '' umount "$where"
	done < <(get_list mounts)
	if [ "${FIELDS[$STEP.lvm]:-}" = true ]; then
		vg=$(vgs --noheadings -o vg_name --select "pv_name=$dev" 2>/dev/null | tr -d ' ')
		[ -z "$vg" ] || change - '' vgchange -an "$vg"
	fi
	[ -z "$dev" ] || change - '' wipefs -q -a "$dev"
	# Without labels it stays, and becomes another one by step_namespace.
	if [ "${FIELDS[$STEP.destroyed]:-}" = true ] && get_list what | grep -qxF "${FIELDS[$STEP.namespace]:-}"; then
		change - '' ndctl destroy-namespace -f "${FIELDS[$STEP.namespace]:-}"
	fi
}

step_destroy_labels() {
	local dimm regions=()
	dimm=${FIELDS[$STEP.dimm]:-}
	mapfile -t regions < <(ndctl list -R -D | jq -r --arg d "$dimm" '
		(if type == "array" then .[] else . end) | .regions[]? // . | select(.mappings[]?.dimm == $d) | .dev')
	change - '' ndctl disable-region "${regions[@]}"
	change - '' ndctl init-labels -f "$dimm"
	change - '' ndctl enable-region "${regions[@]}"
}

# ---------------------------------------------------------------- namespaces

step_init_labels() {
	local region dimms
	region=${FIELDS[$STEP.region]:-}
	mapfile -t dimms < <(get_list dimms)
	change "labels:$region" "$(undo_object labels region "$region" dimms "${dimms[*]}")" ndctl disable-region "$region"
	change - '' ndctl init-labels "${dimms[@]}"
	change - '' ndctl enable-region "$region"
}

step_namespace() {
	local name region mode via existing uuid dev found args
	name=${FIELDS[$STEP.name]:-} region=${FIELDS[$STEP.region]:-} mode=${FIELDS[$STEP.mode]:-} via=${FIELDS[$STEP.via]:-} existing=${FIELDS[$STEP.existing]:-}
	[ -z "$(ndctl_namespace "$name" .dev)" ] || return 0
	# Chosen before it is made, so that a run that is cut off knows it again.
	uuid=$(recorded "namespace:$name" uuid)
	[ -n "$uuid" ] || uuid=$(new_uuid)
	case $mode in
	fsdax) args=(--mode=fsdax --map=dev --align=2M) ;;
	sector) args=(--mode=sector --sector-size=4096) ;;
	esac
	case $via in
	create) args+=(--region="$region" --name="$name" --size="${FIELDS[$STEP.size]:-}" --uuid="$uuid") ;;
	reconfigure) args+=(--force --reconfig="$existing") ;;
	adopt)
		# Nothing to create; the file system makes it ours.
		[ "$DRY_RUN" -eq 1 ] ||
			state_put "namespace:$name" "$(undo_object namespace name "$name" region "$region" via adopt dev "$existing" uuid "$uuid")" '' true
		return 0
		;;
	esac
	change "namespace:$name" "$(undo_object namespace name "$name" region "$region" via "$via" dev "$existing" uuid "$uuid")" \
		ndctl create-namespace "${args[@]}"
	[ "$DRY_RUN" -eq 0 ] || {
		change - '' wipefs -q -a "$(device_of "ns:$name")"
		return 0
	}
	if [ "$via" = reconfigure ]; then
		# Without labels the UUID is the kernel's choice.
		found=$(ndctl list -N -i | jq -r --arg dev "$existing" '(if type == "array" then .[] else . end) | select(.dev == $dev) | .uuid // empty')
		state_put "namespace:$name" "$(undo_object namespace name "$name" region "$region" via "$via" dev "$existing" uuid "$uuid" found_uuid "$found")" '' true
	fi
	dev=$(device_of "ns:$name")
	# What an earlier owner of this place left is no file system of ours.
	change - '' wipefs -q -a "$dev"
}

step_mirror() {
	local vg lv halves=() half dev
	vg=${FIELDS[$STEP.vg]:-} lv=${FIELDS[$STEP.lv]:-}
	while IFS= read -r half; do halves+=("$(device_of "ns:$half")"); done < <(get_list halves)
	need_unless_dry lvcreate lvm2
	if ! vgs "$vg" >/dev/null 2>&1; then
		while IFS= read -r half; do
			dev=$(device_of "ns:$half")
			[ "$(blkid -p -s TYPE -o value "$dev" 2>/dev/null)" = LVM2_member ] ||
				change "pv:$half" "$(undo_object pv device "ns:$half")" pvcreate -q -y "$dev"
		done < <(get_list halves)
		change "vg:$vg" "$(undo_object vg vg "$vg")" vgcreate -q "$vg" "${halves[@]}"
	elif ! is_recorded "vg:$vg"; then
		die "a volume group $vg exists, which is not ours" "--name=NAME gives ours another name"
	fi
	if ! lvs "$vg/$lv" >/dev/null 2>&1; then
		change "lv:$vg/$lv" "$(undo_object lv vg "$vg" lv "$lv")" \
			lvcreate -q -y --type raid1 --mirrors 1 --extents 100%FREE --name "$lv" "$vg" "${halves[@]}"
	fi
	[ "$DRY_RUN" -eq 1 ] || [ -e "/dev/$vg/$lv" ] || change - '' lvchange -ay "$vg/$lv"
}

need_unless_dry() { [ "$DRY_RUN" -eq 1 ] || need "$@"; }

# ---------------------------------------------------------------- file systems

step_filesystem() {
	local what dev type uuid now label
	what=${FIELDS[$STEP.device]:-} type=${FIELDS[$STEP.type]:-}
	dev=$(device_of "$what")
	uuid=$(recorded "filesystem:$what" uuid)
	if [[ $dev != *"{"* ]]; then
		now=$(blkid -p -s UUID -o value "$dev" 2>/dev/null || true)
		if [ -n "$now" ]; then
			[ "$now" != "$uuid" ] || return 0
			die "$dev holds a file system (UUID $now) that is not ours" "wipefs -a $dev removes it"
		fi
	fi
	[ -n "$uuid" ] || uuid=$(new_uuid)
	label=${SETTINGS[name]:-}-${FIELDS[$STEP.role]:-}
	need_unless_dry "mkfs.$type" "$([ "$type" = xfs ] && echo xfsprogs || echo e2fsprogs)"
	# Aligned to 2 MiB, so that a large file can be mapped with huge pages; few
	# inodes and no reserve for root where the files are few and large.
	case $type in
	ext4) set -- mkfs.ext4 -q -b 4096 -m 0 -E stride=512,stripe_width=512 -L "${label:0:16}" -U "$uuid" "$dev" ;;
	xfs) set -- mkfs.xfs -q -f -m "reflink=0,uuid=$uuid" -d su=2m,sw=1 -L "${label:0:12}" "$dev" ;;
	esac
	change "filesystem:$what" "$(undo_object filesystem device "$what" uuid "$uuid")" "$@"
}

kernel_has() { # MAJOR MINOR: is it that version, or newer?
	local major minor
	IFS=.- read -r major minor _ < <(uname -r)
	[ "$major" -gt "$1" ] || { [ "$major" -eq "$1" ] && [ "$minor" -ge "$2" ]; }
}

# Before dax=always came plain dax meant the same.
dax_option() { if kernel_has 5 8; then echo dax=always; else echo dax; fi; }

mount_options() {
	local options=noatime,nodev,nosuid,noexec
	[ "${FIELDS[$STEP.dax]:-}" != true ] || options=$options,$(dax_option)
	printf '%s\n' "$options"
}

step_mount() {
	local where dev
	where=${FIELDS[$STEP.where]:-}
	if ! is_mounted "$where"; then
		dev=$(device_of "${FIELDS[$STEP.device]:-}")
		make_mount_point "$where"
		change "mount:$where" "$(undo_object mount where "$where" type "${FIELDS[$STEP.type]:-}" dax "${FIELDS[$STEP.dax]:-}")" \
			mount -t "${FIELDS[$STEP.type]:-}" -o "$(mount_options)" "$dev" "$where"
	fi
	# All that is on it the server's user makes, and nobody else may look at it.
	if is_mounted "$where" && server_reads test -O "$where" && [ "$(stat -c %a "$where")" = 700 ]; then return 0; fi
	change - '' chown "${SETTINGS[user]:-}:$(server_group)" "$where"
	change - '' chmod 0700 "$where"
}

make_mount_point() {
	[ ! -d "$1" ] || return 0
	actor "$1"
	change "directory:$1" "$(undo_object directory path "$1")" "${AS[@]}" mkdir -p "$AT"
}

# ---------------------------------------------------------------- memory

# The server's user owns it: after a boot of the host, when it is empty, the
# server makes the pool's directory there again.
memory_options() {
	local user options
	user=${SETTINGS[user]:-}
	options=nodev,nosuid,noexec,size=${FIELDS[$STEP.size]:-},mode=0700,uid=$(id -u "$user" 2>/dev/null || echo "$user"),gid=$(id -g "$user" 2>/dev/null || echo "$user")
	case ${FIELDS[$STEP.type]:-} in
	tmpfs)
		options+=,huge=within_size
		! kernel_has 6 4 || options+=,noswap
		;;
	hugetlbfs) options+=,pagesize=2M ;;
	esac
	printf '%s\n' "$options"
}

# What there was before us, also if this was cut off and is repeated.
huge_pages_before() { recorded "hugepages:${FIELDS[$STEP.where]:-}" before | grep . || sysctl -n vm.nr_hugepages; }

# The server takes huge pages for its other shared memory, if it can: as much as
# PCACHE_SEGMENT_BESIDE() in src/include/storage/pcache_pool.h says.
huge_pages_wanted() {
	local size
	size=${FIELDS[$STEP.size]:-}
	echo $(($(huge_pages_before) + (size + size / 32 + 134217728 + 2097151) / 2097152))
}

step_memory_mount() {
	local where type wanted got
	where=${FIELDS[$STEP.where]:-} type=${FIELDS[$STEP.type]:-}
	if is_mounted "$where"; then return 0; fi
	make_mount_point "$where"
	if [ "$type" = hugetlbfs ]; then
		grep -qE '^Hugepagesize: +2048 kB' "$PROC/meminfo" ||
			die "the default size of huge pages is not 2 MB" "--memory=tmpfs, or start the kernel with default_hugepagesz=2M"
		wanted=$(huge_pages_wanted)
		change "hugepages:$where" "$(undo_object hugepages before "$(huge_pages_before)")" sysctl -q -w "vm.nr_hugepages=$wanted"
		got=$(sysctl -n vm.nr_hugepages)
		[ "$DRY_RUN" -eq 1 ] || [ "$got" -ge "$wanted" ] ||
			die "$got huge pages of 2 MB could be reserved, $wanted are needed" "boot the host and repeat apply at once, or make --cache-size smaller"
	fi
	change "mount:$where" "$(undo_object mount where "$where" type "$type" dax false)" mount -t "$type" -o "$(memory_options)" "$type" "$where"
}

# A directory of the server's user, which nobody else may enter.
step_directory() {
	local path=$1 command
	[ ! -d "$path" ] || return 0
	actor "$path"
	# On the mounts, which are theirs, once they are there.
	[[ $path != "${SETTINGS[mount_root]:-}/${SETTINGS[name]:-}/"* ]] || AS=(as_server) AT=$path
	if [ ${#AS[@]} -eq 0 ]; then
		command=(install -d -o "${SETTINGS[user]:-}" -g "$(server_group)" -m 0700 "$AT")
	else
		command=(as_server mkdir -p -m 0700 "$AT")
	fi
	change "directory:$path" "$(undo_object directory path "$path")" "${command[@]}"
}

# Of the server's user, with all that is in it.  Each of both only does what it must.
remove_tree() {
	change - '' as_server find "$1" -mindepth 1 -delete
	actor "$1"
	change - '' "${AS[@]}" rmdir "$AT"
}

# Copied by the server's user, a file of somebody else's would become theirs.
foreign_file() { find "$1" ! -uid "$EUID" -print -quit; }

# ---------------------------------------------------------------- the cluster

step_cluster() {
	local pgdata data waldir target
	pgdata=${SETTINGS[pgdata]:-} data=${FIELDS[$STEP.data]:-} waldir=${FIELDS[$STEP.waldir]:-}
	target=${data:-$pgdata}
	if [ "$DRY_RUN" -eq 0 ] && server_runs "$pgdata"; then die "a server runs on $pgdata" "pg_ctl -D $pgdata stop -m fast"; fi
	if [ -e "$pgdata/PG_VERSION" ] || [ -e "$pgdata.ndctl-setup-moved/PG_VERSION" ]; then
		[ -z "$data" ] || move_directory "$pgdata" "$data"
		[ -z "$waldir" ] || move_directory "$target/pg_wal" "$waldir"
		return
	fi
	if [ -d "$pgdata" ] && [ -n "$(ls -A "$pgdata" 2>/dev/null)" ]; then
		# An initdb of ours that was cut off leaves no PG_VERSION, or half a directory.
		die "$pgdata is neither empty nor a cluster" "remove what is in it, or name another directory with --pgdata"
	fi
	step_directory "$target"
	set -- "$(program initdb)" -D "$target"
	if [ -n "$waldir" ]; then
		step_directory "$waldir"
		set -- "$@" -X "$waldir"
	fi
	local options
	read -r -a options <<<"${SETTINGS[initdb_options]:-}"
	change "initdb:$target" "$(undo_object initdb path "$target" waldir "$waldir")" as_server "$@" "${options[@]}"
	if [ -n "$data" ] && [ ! -L "$pgdata" ]; then
		make_mount_point "$(dirname "$pgdata")"
		actor "$pgdata"
		[ ! -d "$pgdata" ] || change - '' "${AS[@]}" rmdir "$AT"
		change "link:$pgdata" "$(undo_object link path "$pgdata")" "${AS[@]}" ln -sT "$data" "$AT"
	fi
}

# Move a directory to another file system, and leave a symbolic link.  Cut off
# at any point it can be run again: until the link is there, the original,
# under its own name or with a suffix, is complete.
move_directory() {
	local from=$1 to=$2 aside=$1.ndctl-setup-moved undo foreign
	undo=$(undo_object move from "$from" to "$to")
	if [ -L "$from" ]; then
		[ "$(readlink -f "$from")" = "$(readlink -f "$to")" ] || [ "$DRY_RUN" -eq 1 ] ||
			die "$from leads to $(readlink "$from"), not to $to" "move it back first"
	else
		if [ ! -e "$aside" ]; then
			if [ -e "$to" ]; then
				is_recorded "move:$from" || [ -z "$(ls -A "$to")" ] || die "$to is there already, and not empty"
				remove_tree "$to"
			fi
			if [ "$DRY_RUN" -eq 0 ]; then
				foreign=$(as_server foreign_file "$from") || die "$from cannot be read by ${SETTINGS[user]:-}"
				[ -z "$foreign" ] || die "$foreign does not belong to ${SETTINGS[user]:-}, and would once it is moved" \
					"chown ${SETTINGS[user]:-} it, or move it out of $from"
			fi
			change "move:$from" "$undo" as_server cp -a "$from" "$to"
			change - '' as_server sync -f "$(dirname "$to")"
			actor "$from"
			change - '' "${AS[@]}" mv -T "$AT" "$AT.ndctl-setup-moved"
		fi
		actor "$from"
		change - '' "${AS[@]}" ln -sT "$to" "$AT"
		change - '' "${AS[@]}" sync -f "$(dirname "$AT")"
	fi
	if [ -e "$aside" ] || { [ "$DRY_RUN" -eq 1 ] && [ ! -L "$from" ]; }; then remove_tree "$aside"; fi
}

# Ask pg_pcache, whose answer is the server's: would a pool here be on fsdax?
step_check_map_sync() {
	local where kind
	where=${FIELDS[$STEP.directory]:-}
	if [ "$DRY_RUN" -eq 1 ]; then return 0; fi
	kind=$(fs_kind "$where")
	if [ "$kind" = fsdax ]; then
		note "    MAP_SYNC works on $where"
	elif [ "${FIELDS[$STEP.required]:-}" = true ]; then
		die "MAP_SYNC does not work on $where (pg_pcache calls it \"${kind:-unknown}\")" \
			"stores would not be durable; dmesg and \"findmnt $where\" tell whether DAX is on"
	else
		warn "MAP_SYNC does not work on $where: use pcache.mode = planned_restart only"
	fi
}

# fs_kind DIRECTORY: what the server would take the file system for.  The configuration that
# pg_pcache reads has the data directory only, since its own may name another pool.
fs_kind() {
	local probe kind pgdata
	pgdata=${SETTINGS[pgdata]:-}
	probe=$(as_server mktemp -d "$1/.ndctl-setup.XXXXXX") || die "${SETTINGS[user]:-} cannot write to $1"
	as_server write_file "$probe/postgresql.conf" "data_directory = '${pgdata//\'/\'\'}'" 600
	kind=$(as_server "$(program pg_pcache)" init -D "$probe" --directory "$probe/pool" --size 128kB --force --dry-run --json 2>/dev/null |
		jq -r '.file_system // empty') || kind=''
	as_server rm -r "$probe"
	printf '%s\n' "$kind"
}

step_pool() {
	local directory pgdata
	directory=${FIELDS[$STEP.directory]:-} pgdata=${SETTINGS[pgdata]:-}
	[ ! -e "$directory/pool" ] || return 0
	change "pool:$directory" "$(undo_object pool directory "$directory")" \
		as_server "$(program pg_pcache)" init -D "$pgdata" --directory "$directory" --size "$((${FIELDS[$STEP.size]:-} / 1024))kB"
}

# ---------------------------------------------------------------- the next boot

# For systemd, where it runs: with --boot=fstab it may not.
units_changed() { if [ "${SETTINGS[boot]:-}" = systemd ] || [ -d /run/systemd/system ]; then change - '' systemctl daemon-reload; fi; }

# Paths of mount points have no character that systemd would have to escape.
unit_name() {
	local path=${1#/}
	printf '%s.mount\n' "${path//\//-}"
}

# Huge pages are reserved anew at each boot, before the server asks for them.
boot_huge_pages() {
	local file text
	file=$ETC/sysctl.d/ndctl-setup-${SETTINGS[name]:-}.conf
	text="# Written by ndctl-setup; \"ndctl-setup undo\" removes it.
vm.nr_hugepages = $(huge_pages_wanted)"
	[ "$(cat "$file" 2>/dev/null)" != "$text" ] || return 0
	change "sysctl:$file" "$(undo_object file file "$file")" write_file "$file" "$text"
}

# Mounts of the plan: TARGET SOURCE TYPE OPTIONS, one a line
boot_mounts() {
	for ((STEP = 1; STEP <= STEPS; STEP++)); do
		case ${FIELDS[$STEP.kind]:-} in
		mount)
			printf '%s UUID=%s %s %s\n' "${FIELDS[$STEP.where]:-}" "$(recorded "filesystem:${FIELDS[$STEP.device]:-}" uuid | grep . || echo "{${FIELDS[$STEP.role]:-}}")" "${FIELDS[$STEP.type]:-}" "$(mount_options)"
			;;
		memory-mount) printf '%s %s %s %s\n' "${FIELDS[$STEP.where]:-}" "${FIELDS[$STEP.type]:-}" "${FIELDS[$STEP.type]:-}" "$(memory_options)" ;;
		esac
	done
}

in_fstab() { # MOUNT-POINT: is there a line for it?
	local source where
	[ -e "$ETC/fstab" ] || return 1
	while read -r source where _; do
		[[ $source == \#* ]] || [ "$where" != "$1" ] || return 0
	done <"$ETC/fstab"
	return 1
}

step_boot() {
	local where source type options text file service required='' wanted=''
	service=${SETTINGS[service]:-}
	for ((STEP = 1; STEP <= STEPS; STEP++)); do
		[ "${FIELDS[$STEP.kind]:-} ${FIELDS[$STEP.type]:-}" != "memory-mount hugetlbfs" ] || boot_huge_pages
	done
	while read -r where source type options; do
		# Without its pool the server starts all the same, but not without WAL or data.
		if [ "${where##*/}" = cache ]; then wanted=$(unit_name "$where"); else required+=" $where"; fi
		if [ "${SETTINGS[boot]:-}" = fstab ]; then
			text="$source $where $type $options,nofail,x-systemd.before=$service 0 0"
			! in_fstab "$where" || continue
			change "fstab:$where" "$(undo_object line file "$ETC/fstab" line "$text")" add_line "$ETC/fstab" "$text"
		else
			[ "$source" != "${source#UUID=}" ] && source=/dev/disk/by-uuid/${source#UUID=}
			file=${SETTINGS[unit_dir]:-}/$(unit_name "$where")
			text="# Written by ndctl-setup; \"ndctl-setup undo\" removes it.
[Unit]
Description=PostgreSQL on persistent memory: $where
Before=$service

[Mount]
What=$source
Where=$where
Type=$type
Options=$options

[Install]
WantedBy=local-fs.target"
			[ "$(cat "$file" 2>/dev/null)" != "$text" ] || continue
			change "unit:$file" "$(undo_object unit file "$file")" write_file "$file" "$text"
			change - '' systemctl enable "$(basename "$file")"
		fi
	done < <(boot_mounts)
	if [ "${SETTINGS[boot]:-}" = systemd ]; then
		file=${SETTINGS[unit_dir]:-}/$service.d/ndctl-setup-${SETTINGS[name]:-}.conf
		text="# Written by ndctl-setup; \"ndctl-setup undo\" removes it.
[Unit]${required:+
RequiresMountsFor=${required# }}${wanted:+
Wants=$wanted
After=$wanted}"
		if [ "$(cat "$file" 2>/dev/null)" != "$text" ]; then
			change "unit:$file" "$(undo_object unit file "$file")" write_file "$file" "$text"
			change - '' systemctl daemon-reload
		fi
	fi
}

# ---------------------------------------------------------------- a cache in DRAM, over a reboot

# pg_pcache's own choice is beside the data directory, where no backup finds it.
# Where the server's user may make no file there, a directory of its own does.
image_file() { # DATA-DIRECTORY
	local image
	image=${SETTINGS[image]:-}
	if [ -z "$image" ]; then
		# The mounts are the server's user's, once they are there.
		if [[ $1 == "${SETTINGS[mount_root]:-}/${SETTINGS[name]:-}/"* ]] || server_reads test -w "$(dirname "$1")"; then
			image=$1.pcache-image
		else
			image=$1.pcache/image
		fi
		[[ $image != *[[:space:]]* ]] || die "$image is a path with spaces" "--image=FILE names another one"
	fi
	printf '%s\n' "$image"
}

# The instance's name, as of Debian's units; the set-up's if there is none.
keep_unit() {
	local service
	service=${SETTINGS[service]:-}
	if [[ $service =~ ^postgresql@(.+)\.service$ ]]; then
		printf 'pg-pcache@%s.service\n' "${BASH_REMATCH[1]}"
	else
		printf 'pg-pcache@%s.service\n' "${SETTINGS[name]:-}"
	fi
}

# Debian's package has the template where systemd looks for it.
keep_template() {
	local file
	for file in "${HERE%/*/*}/packaging/systemd/pg-pcache@.service" /usr/lib/systemd/system/pg-pcache@.service; do
		if [ -r "$file" ]; then
			printf '%s\n' "$file"
			return
		fi
	done
	die "there is no $file" "it is distributed together with ndctl-setup"
}

# What systemd is to run for the server's user is as it was distributed.
require_trusted_template() {
	local template
	template=$(keep_template) || exit 1
	require_by_root "$template" "unit's template" "copy $HERE and it to where only root can change them, or install Debian's package"
}

# The template, fitted to this set-up: an instance has a file of its own.
keep_text() { # DATA-DIRECTORY IMAGE
	local template line pgdata mounts bin
	template=$(keep_template) || exit 1
	bin=$(program pg_pcache)
	# systemd would take it for several words, or for a variable
	[[ $bin != *[[:space:]\$]* ]] || die "$bin cannot be named in a unit" "--bindir=DIR names it by a path without spaces"
	pgdata=${SETTINGS[pgdata]:-}
	mounts="${FIELDS[$STEP.mount]:-} \"$pgdata\" $2"
	[ "$1" = "$pgdata" ] || mounts+=" $1"
	printf '# Written by ndctl-setup; "ndctl-setup undo" removes it.\n'
	while IFS= read -r line; do
		# In values, % stands for itself only if it is doubled.
		case $line in
		'#'*) continue ;;
		Before=*) line=Before=${SETTINGS[service]:-} ;;
		RequiresMountsFor=*) line=RequiresMountsFor=${mounts//%/%%} ;;
		User=*) line=User=${SETTINGS[user]:-} ;;
		Environment=PGDATA=*) line="Environment=\"PGDATA=${pgdata//%/%%}\"" ;;
		Environment=LOAD_SECONDS=*) line=Environment=LOAD_SECONDS=${FIELDS[$STEP.load_seconds]:-} ;;
		Environment=LOAD_OPTIONS=*) line="Environment=\"LOAD_OPTIONS=--from ${2//%/%%}\"" ;;
		Environment=SAVE_OPTIONS=*) line="Environment=\"SAVE_OPTIONS=--to ${2//%/%%}\"" ;;
		TimeoutStartSec=*) line=TimeoutStartSec=$((${FIELDS[$STEP.load_seconds]:-} + 60)) ;;
		TimeoutStopSec=*) line=TimeoutStopSec=${FIELDS[$STEP.save_seconds]:-} ;;
		Exec*) line=${line//\/usr\/bin\/pg_pcache/${bin//%/%%}} ;;
		WantedBy=*) line=WantedBy=${SETTINGS[service]:-} ;;
		esac
		printf '%s\n' "$line"
	done < <(sed -n '/^\[Unit\]/,$p' "$template")
}

step_keep() {
	local data image file text
	data=${FIELDS[$STEP.data]:-}
	data=${data:-${SETTINGS[pgdata]:-}}
	image=$(image_file "$data")
	[ -n "${SETTINGS[image]:-}" ] || [ "$image" != "$data.pcache/image" ] || step_directory "$data.pcache"
	file=${SETTINGS[unit_dir]:-}/$(keep_unit)
	text=$(keep_text "$data" "$image") || exit 1
	[ "$(cat "$file" 2>/dev/null)" != "$text" ] || return 0
	change "keep:$file" "$(undo_object keep file "$file" image "$image")" write_file "$file" "$text"
	change - '' systemctl daemon-reload
	change - '' systemctl enable "$(basename "$file")"
}

# knows_method METHOD: does this server know that wal_sync_method?
knows_method() {
	[ -e "${SETTINGS[pgdata]:-}/PG_VERSION" ] &&
		as_server "$(program postgres)" -D "${SETTINGS[pgdata]:-}" -c "wal_sync_method=$1" -C wal_sync_method >/dev/null 2>&1
}

# direct_is_faster DIRECTORY: are direct writes there faster than the page cache
# and a sync, by a tenth at least?  That depends on the host.
direct_is_faster() {
	local file=$1/ndctl-setup.fsync out direct synced
	note "    pg_test_fsync in $1, half a minute"
	out=$(as_server "$(program pg_test_fsync)" -s 1 -f "$file" 2>&1) || true
	as_server rm -f "$file"
	# "   open_direct      7299.123 ops/sec    137 usecs/op"; first with one page a write
	direct=$(sed -nE 's/^ +open_direct +([0-9]+)\.[0-9]+ ops.*/\1/p' <<<"$out" | head -n 1)
	synced=$(sed -nE 's/^ +fdatasync +([0-9]+)\.[0-9]+ ops.*/\1/p' <<<"$out" | head -n 1)
	if [ -z "$direct" ] || [ -z "$synced" ]; then
		note "    it does not tell about open_direct: $(tail -n 1 <<<"$out")"
		return 1
	fi
	note "    writes per second: $direct with open_direct, $synced with fdatasync"
	[ $((direct * 10)) -ge $((synced * 11)) ]
}

# Lines for postgresql.conf; wal_sync_method = pmem if WAL is on fsdax, MAP_SYNC works there, and this server knows it.
# On a mirror the page cache is one more copy, so open_direct, if it is faster here.
conf_lines() {
	jq -r '.conf[]' <<<"$1"
	if [ "$DRY_RUN" -eq 0 ] && jq -e 'any(.places[]; .mode == "sector")' <<<"$1" >/dev/null &&
		knows_method open_direct && direct_is_faster "$(readlink -f "${SETTINGS[pgdata]:-}/pg_wal")"; then
		echo "wal_sync_method = open_direct"
	fi
	if jq -e 'any(.places[]; .role == "wal" and .mode == "fsdax") or (.wal_directory != null and all(.places[]; .role != "wal"))' <<<"$1" >/dev/null &&
		knows_method pmem &&
		[ "$(fs_kind "$(dirname "$(jq -r .wal_directory <<<"$1")")")" = fsdax ]; then
		echo "wal_sync_method = pmem"
	fi
}

step_conf() {
	local file main text
	[ -n "${SETTINGS[write_conf]:-}" ] || return 0
	file=${SETTINGS[pgdata]:-}/ndctl-setup.conf
	main=${SETTINGS[config_file]:-}
	main=${main:-${SETTINGS[pgdata]:-}/postgresql.conf}
	text="# Written by ndctl-setup; \"ndctl-setup undo\" removes it.
$(conf_lines "$PLAN")"
	if [ "$(server_reads cat "$file" 2>/dev/null)" != "$text" ]; then
		change "conf:$file" "$(undo_object file file "$file")" as_server write_file "$file" "$text" 600
	fi
	editor "$main"
	if ! "${AS[@]}" grep -qxF "include_if_exists = '$file'" "$AT" 2>/dev/null; then
		change "include:$main" "$(undo_object line file "$main" line "include_if_exists = '$file'")" \
			"${AS[@]}" add_line "$AT" "include_if_exists = '$file'"
	fi
}
