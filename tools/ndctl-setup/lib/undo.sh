#!/bin/bash
# undo: take back what the state file says that apply did, latest first, and
# nothing else.  A record is dropped when its change is gone, so undo can be
# repeated as well.

verb_undo() {
	local key n stored
	if [ ! -e "$STATE_FILE" ]; then
		say "nothing to undo: there is no $STATE_FILE"
		return 0
	fi
	if [ "$DRY_RUN" -eq 0 ]; then
		[ "$(id -u)" -eq 0 ] || die "undo must be run by root"
		state_lock
	fi
	# As it was set up, not as asked for now.
	# shellcheck disable=SC2016 # jq's variables
	load_config '.config + {force_destroy: $now.force_destroy}' --argjson now "$CONFIG" "$STATE_FILE"
	[ "$DRY_RUN" -eq 1 ] || check_user
	stored=$(state_read | jq -r '[.records[].undo | select(.kind == "namespace") | .region | select(. != "")] | unique | join(", ")')
	if server_runs "${SETTINGS[pgdata]:-}"; then die "a server runs on ${SETTINGS[pgdata]:-}" "pg_ctl -D ${SETTINGS[pgdata]:-} stop -m fast"; fi
	check_undo
	for ((n = ${#KEYS[@]} - 1; n >= 0; n--)); do
		key=${KEYS[n]}
		COMMANDS=()
		[ "$DRY_RUN" -eq 1 ] || note "==> undo $key"
		undo_"$(field "$key" kind)" "$key"
		if [ "$DRY_RUN" -eq 1 ]; then
			printf '%s\n' "${COMMANDS[@]}"
		else
			state_drop "$key"
		fi
	done
	[ "$DRY_RUN" -eq 1 ] || rm -f "$STATE_FILE" "$STATE_FILE.lock"
	say "all is taken back"
	[ -z "$stored" ] || say "" "What was stored is still on the medium, below $stored: undo removes names and signatures, not contents." \
		"Before the DIMMs change hands, erase them: ndctl sanitize-dimm --crypto-erase (or --overwrite), which takes all that is on a DIMM."
}

# A cluster that apply made may have become somebody's.
check_undo() {
	local path
	if state_read | jq -e 'any(.records[].undo; .kind == "dax" or .kind == "policy")' >/dev/null; then
		die "this was set up with the profile memory-tier of version 1.0.0, which is gone" "run undo with ndctl-setup of 1.0.0"
	fi
	while IFS= read -r path; do
		[ -e "$path/PG_VERSION" ] || continue
		jq -e --arg p "$path" '.force_destroy | index($p) != null' <<<"$CONFIG" >/dev/null ||
			die "undo would remove the cluster in $path, which apply created" "--force-destroy=$path agrees to that"
	done < <(state_read | jq -r '.records[].undo | select(.kind == "initdb") | .path')
	# What else is on a file system can only be seen if it is mounted.
	while IFS= read -r path; do
		is_mounted "$path" ||
			jq -e --arg p "$path" '.force_destroy | index($p) != null' <<<"$CONFIG" >/dev/null ||
			die "$path is not mounted, so it can't be seen what is on it" "mount it, or agree to its loss: --force-destroy=$path"
	done < <(state_read | jq -r '.records[] | select(.undo.kind == "mount" and .done and (.undo.type | IN("tmpfs", "hugetlbfs") | not)) | .undo.where')
}

# field KEY NAME: of the record that is undone
field() { recorded "$@"; }

# quietly COMMAND...: a change that is not recorded
quietly() { change - '' "$@"; }

undo_labels() {
	local region dimms
	region=$(field "$1" region)
	read -r -a dimms <<<"$(field "$1" dimms)"
	quietly ndctl disable-region "$region"
	quietly ndctl zero-labels "${dimms[@]}"
	quietly ndctl enable-region "$region"
}

undo_namespace() {
	local name dev
	name=$(field "$1" name)
	dev=$(ndctl_namespace "$name" .dev)
	[ -n "$dev" ] || return 0
	case $(field "$1" via) in
	create) quietly ndctl destroy-namespace --force "$dev" ;;
	reconfigure) quietly ndctl create-namespace --force --reconfig="$dev" --mode=raw ;;
	adopt) ;;
	esac
}

undo_pv() {
	local dev
	dev=$(DRY_RUN=1 device_of "$(field "$1" device)")
	[ "$(blkid -p -s TYPE -o value "$dev" 2>/dev/null)" != LVM2_member ] || quietly pvremove -q -y -ff "$dev"
}

undo_vg() {
	local vg
	vg=$(field "$1" vg)
	! vgs "$vg" >/dev/null 2>&1 || quietly vgremove -q -y "$vg"
}

undo_lv() {
	local lv
	lv=$(field "$1" vg)/$(field "$1" lv)
	! lvs "$lv" >/dev/null 2>&1 || quietly lvremove -q -y "$lv"
}

# The signature goes, so that nobody finds it when the place is used again.
undo_filesystem() {
	local dev
	dev=$(DRY_RUN=1 device_of "$(field "$1" device)")
	[ "$(blkid -p -s UUID -o value "$dev" 2>/dev/null)" = "$(field "$1" uuid)" ] || return 0
	quietly wipefs -q -a "$dev"
}

undo_mount() {
	local where stray
	where=$(field "$1" where)
	is_mounted "$where" || return 0
	stray=$(find "$where" -mindepth 1 -maxdepth 1 ! -name lost+found -printf '%p ' 2>/dev/null)
	[ -z "$stray" ] || die "there is more on $where than apply put there: $stray" "move it away, then repeat undo"
	quietly umount "$where"
}

undo_hugepages() { quietly sysctl -q -w "vm.nr_hugepages=$(field "$1" before)"; }

undo_directory() {
	local path
	path=$(field "$1" path)
	if [ ! -d "$path" ] || [ -L "$path" ]; then return 0; fi
	actor "$path"
	quietly "${AS[@]}" rmdir "$AT"
}

# Allowed by check_undo.
undo_initdb() {
	local waldir
	waldir=$(field "$1" waldir)
	quietly as_server find "$(field "$1" path)" -mindepth 1 -delete
	[ -z "$waldir" ] || [ ! -d "$waldir" ] || quietly as_server find "$waldir" -mindepth 1 -delete
}

undo_link() {
	[ -L "$(field "$1" path)" ] || return 0
	actor "$(field "$1" path)"
	quietly "${AS[@]}" rm "$AT"
}

undo_move() {
	local from to back
	from=$(field "$1" from) to=$(field "$1" to) back=$from.ndctl-setup-back
	if [ -L "$from" ]; then
		[ -d "$to" ] || die "$to is not there; is its file system mounted?" "mount it, then repeat undo"
		[ ! -e "$back" ] || remove_tree "$back"
		# Where only root may make it, root makes it and the server's user fills it.
		actor "$back"
		[ ${#AS[@]} -gt 0 ] || quietly install -d -o "${SETTINGS[user]:-}" -g "$(server_group)" -m 0700 "$AT"
		quietly as_server cp -aT "$to" "$back"
		quietly as_server sync -f "$back"
		actor "$from"
		quietly "${AS[@]}" rm "$AT"
		quietly "${AS[@]}" mv -T "$AT.ndctl-setup-back" "$AT"
		quietly "${AS[@]}" sync -f "$(dirname "$AT")"
	elif [ ! -e "$from" ]; then
		actor "$from"
		if [ -d "$back" ]; then
			quietly "${AS[@]}" mv -T "$AT.ndctl-setup-back" "$AT"
		elif [ -d "$from.ndctl-setup-moved" ]; then
			quietly "${AS[@]}" mv -T "$AT.ndctl-setup-moved" "$AT"
		fi
	fi
	if [ -d "$from" ] && [ ! -L "$from" ]; then
		if [ -e "$to" ]; then remove_tree "$to"; fi
		if [ -e "$from.ndctl-setup-moved" ]; then remove_tree "$from.ndctl-setup-moved"; fi
	fi
}

# The pool is a cache: nothing is lost with it.
undo_pool() {
	quietly as_server rm -f "$(field "$1" directory)/pool"
}

undo_unit() {
	local file
	file=$(field "$1" file)
	[ -e "$file" ] || return 0
	case $file in *.mount) quietly systemctl disable "$(basename "$file")" ;; esac
	quietly rm "$file"
	case $file in *.d/*) quietly rmdir --ignore-fail-on-non-empty "$(dirname "$file")" ;; esac
	units_changed
}

# The image belongs to a pool that goes as well.
undo_keep() {
	local file image
	file=$(field "$1" file) image=$(field "$1" image)
	quietly as_server rm -f "$image" "$image.tmp"
	[ -e "$file" ] || return 0
	quietly systemctl disable "$(basename "$file")"
	quietly rm "$file"
	quietly systemctl daemon-reload
}

undo_file() {
	actor "$(field "$1" file)"
	quietly "${AS[@]}" rm -f "$AT"
}

undo_line() {
	editor "$(field "$1" file)"
	quietly "${AS[@]}" remove_line "$AT" "$(field "$1" line)"
}

# remove_line FILE LINE: called through change.
remove_line() {
	local new rc=0
	[ -e "$1" ] || return 0
	new=$(mktemp) || return
	grep -vxF -- "$2" "$1" >"$new" || [ $? -eq 1 ] || rc=1 # 1: no line is left
	[ $rc -ne 0 ] || cat "$new" >"$1" || rc=1
	rm "$new"
	return $rc
}
