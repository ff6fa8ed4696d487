#!/bin/bash
# undo: take back what the state file says that apply did, latest first, and
# nothing else.  A record is dropped when its change is gone, so undo can be
# repeated as well.

verb_undo() {
	local record key undo kind
	if [ ! -e "$STATE_FILE" ]; then
		say "nothing to undo: there is no $STATE_FILE"
		return 0
	fi
	if [ "$DRY_RUN" -eq 0 ]; then
		[ "$(id -u)" -eq 0 ] || die "undo must be run by root"
		state_lock
	fi
	# As it was set up, not as asked for now.
	load_config "$(state_read | jq -c --argjson now "$CONFIG" '.config + {force_destroy: $now.force_destroy}')"
	if server_runs "$(config pgdata)"; then die "a server runs on $(config pgdata)" "pg_ctl -D $(config pgdata) stop -m fast"; fi
	check_undo
	while IFS= read -r record <&7; do
		key=$(jq -r .key <<<"$record")
		undo=$(jq -c .undo <<<"$record")
		kind=$(jq -r .kind <<<"$undo")
		COMMANDS=()
		[ "$DRY_RUN" -eq 1 ] || note "==> undo $key"
		undo_"${kind}" "$undo"
		if [ "$DRY_RUN" -eq 1 ]; then
			printf '%s\n' "${COMMANDS[@]}"
		else
			state_drop "$key"
		fi
	done 7< <(state_read | jq -c '.records | reverse | .[]')
	[ "$DRY_RUN" -eq 1 ] || rm -f "$STATE_FILE" "$STATE_FILE.lock"
	say "all is taken back"
}

# A cluster that apply made may have become somebody's.
check_undo() {
	local path
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

field() { jq -r --arg f "$2" '.[$f] // empty' <<<"$1"; }

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
	dev=$(ndctl_namespace "$name" | jq -r .dev)
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
	[ ! -d "$(field "$1" path)" ] || [ -L "$(field "$1" path)" ] || quietly rmdir "$(field "$1" path)"
}

# Allowed by check_undo.
undo_initdb() {
	local waldir
	waldir=$(field "$1" waldir)
	quietly find "$(field "$1" path)" -mindepth 1 -delete
	[ -z "$waldir" ] || [ ! -d "$waldir" ] || quietly find "$waldir" -mindepth 1 -delete
}

undo_link() { [ ! -L "$(field "$1" path)" ] || quietly rm "$(field "$1" path)"; }

undo_move() {
	local from to back
	from=$(field "$1" from) to=$(field "$1" to) back=$from.ndctl-setup-back
	if [ -L "$from" ]; then
		[ -d "$to" ] || die "$to is not there; is its file system mounted?" "mount it, then repeat undo"
		quietly rm -rf "$back"
		quietly cp -a "$to" "$back"
		quietly sync -f "$(dirname "$back")"
		quietly rm "$from"
		quietly mv -T "$back" "$from"
		quietly sync -f "$(dirname "$from")"
	elif [ ! -e "$from" ] && [ -d "$back" ]; then
		quietly mv -T "$back" "$from"
	elif [ ! -e "$from" ] && [ -d "$from.ndctl-setup-moved" ]; then
		quietly mv -T "$from.ndctl-setup-moved" "$from"
	fi
	if [ -d "$from" ] && [ ! -L "$from" ]; then
		if [ -e "$to" ]; then quietly rm -rf "$to"; fi
		if [ -e "$from.ndctl-setup-moved" ]; then quietly rm -rf "$from.ndctl-setup-moved"; fi
	fi
}

# The pool is a cache: nothing is lost with it.
undo_pool() {
	local directory pgdata
	directory=$(field "$1" directory) pgdata=$(field "$1" pgdata)
	quietly rm -f "$directory/pool" "$pgdata/pg_pcache.state"
	[ ! -L "$pgdata/pg_pcache" ] || quietly rm "$pgdata/pg_pcache"
}

undo_unit() {
	local file
	file=$(field "$1" file)
	[ -e "$file" ] || return 0
	case $file in *.mount) quietly systemctl disable "$(basename "$file")" ;; esac
	quietly rm "$file"
	case $file in *.d/*) quietly rmdir --ignore-fail-on-non-empty "$(dirname "$file")" ;; esac
	quietly systemctl daemon-reload
}

undo_file() { quietly rm -f "$(field "$1" file)"; }

undo_line() { quietly remove_line "$(field "$1" file)" "$(field "$1" line)"; }

# remove_line FILE LINE: called through change.
remove_line() {
	[ -e "$1" ] || return 0
	grep -vxF -- "$2" "$1" >"$1.ndctl-setup-new" || [ $? -eq 1 ] # 1: no line is left
	cat "$1.ndctl-setup-new" >"$1"
	rm "$1.ndctl-setup-new"
}
