# The planner: {config, inventory, state} in, plan out.  It only computes.
#
# config     what the user asked for, sizes in bytes, null for "you choose"
# inventory  lib/inventory.sh
# state      what an earlier apply recorded; its namespaces are ours to use
# plan       {profile, ok, refusals, warnings, regions, places, steps, conf, notes}

def MiB: 1048576;
def GiB: 1073741824;
def roundup($n; $to): ((($n + $to - 1) / $to) | floor) * $to;
def rounddown($n; $to): (($n / $to) | floor) * $to;
def list: if . == null then [] elif type == "array" then . else [.] end;
def human:
	if . >= GiB and . % GiB == 0 then "\(. / GiB) GiB"
	elif . >= MiB then "\(. / MiB | floor) MiB"
	else "\(. / 1024 | floor) kiB" end;
def setting: # as in postgresql.conf
	if . % GiB == 0 then "\(. / GiB)GB" else "\(. / MiB | floor)MB" end;

. as $in
| $in.config as $c
| $in.inventory as $inv
| ($in.state.records // []) as $records
| [$records[] | select(.undo.kind == "namespace") | .undo.uuid, .undo.found_uuid | select(. != null)] as $our_uuids

# ---------------------------------------------------------------- what there is

| def is_ours: [.uuid, .raw_uuid] | any(. as $u | $u != null and ($our_uuids | index($u)) != null);

# An unused seed device, which libnvdimm shows for every region with labels.  What
# somebody disabled has no size, either, but it has a UUID or a mode.
def is_seed:
	(.size // 0) == 0 and .mode == "raw"
	and ((.uuid // "") | IN("", "00000000-0000-0000-0000-000000000000"));

def forced($object): ($c.force_destroy | index($object)) != null;

# What ndctl called them before version 60
def mode_today: {"memory": "fsdax", "dax": "devdax"}[.] // .;

# Is what was stored safe when the power goes?
def power_of($bus; $r):
	($r.persistence_domain // "unknown") as $domain
	| if $bus.provider == "virtio-pmem" then {safe: "no", why: "virtio-pmem needs a flush by the host for each write (no MAP_SYNC)"}
	  elif $bus.provider == "e820" and ($inv.cmdline | test("memmap=[^ ]*!")) then {safe: "no", why: "memmap= on the kernel\u0027s command line makes it of ordinary memory"}
	  elif $domain == "none" then {safe: "no", why: "the platform says that it has no persistence domain"}
	  elif $domain == "unknown" then {safe: "unknown", why: "the platform does not say what its persistence domain is"}
	  else {safe: "yes", why: ""} end;

# Why a DIMM keeps its region from being used: {code, object, message, hint}
def module_faults:
	"replace the DIMM, or ask its vendor\u0027s tool" as $replace
	| .dev as $dev
	| (select(.security == "locked") | {code: "locked", object: $dev, message: "\($dev) is locked",
		hint: "ndctl load-keys, then ndctl enable-dimm \($dev): the kernel unlocks it with the key of this host"}),
	  (select(.security == "overwrite") | {code: "locked", object: $dev, message: "\($dev) is being overwritten",
		hint: "ndctl wait-overwrite \($dev) returns when that is done"}),
	  (select(.state == "disabled" and .security != "locked") | {code: "disabled", object: $dev, message: "\($dev) is disabled",
		hint: "ndctl enable-dimm \($dev)"}),
	  (to_entries[] | select((.key | startswith("flag_")) and .value == true and .key != "flag_smart_event")
	   | {code: "unhealthy", object: $dev, message: "\($dev): \(.key | ltrimstr("flag_"))", hint: $replace}),
	  ((.health.health_state // "unknown") | select(IN("ok", "unknown", "non-critical") | not)
	   | {code: "unhealthy", object: $dev, message: "\($dev): health \(.)", hint: $replace});

# What is to be said of a DIMM, though it can be used
def module_concerns:
	"ndctl list -DH -d \(.dev)" as $command | .dev as $dev
	| (select(.flag_smart_event == true) | {code: "health", object: $dev, message: "\($dev): smart_event", $command}),
	  (select(.health.health_state == "non-critical") | {code: "health", object: $dev, message: "\($dev): health non-critical", $command}),
	  (.health // {} | to_entries[] | select((.key | startswith("alarm_")) and (.key | startswith("alarm_enabled") | not) and .value == true)
	   | {code: "health", object: $dev, message: "\($dev): \(.key)", $command}),
	  (select(.health.shutdown_state == "dirty")
	   | {code: "unsafe-shutdown", object: $dev, $command,
	      message: "\($dev) was not shut down safely\(.health.shutdown_count | if . != null then " (\(.) times so far)" else "" end)"});

# Why a region that is enabled has no place for a namespace of ours
def namespace_faults($r; $ns; $via; $stray):
	([($r.mappings // [])[].dimm] | join(" ")) as $dimms
	| if $via != "create" then
		($ns[] | select(.state == "disabled")
		 | {code: "disabled", object: .dev, message: "\(.dev) on \($r.dev) is disabled, so that what it holds cannot be seen", hint: "ndctl enable-namespace \(.dev)"}),
		(if ($ns | length) == 0 and $via != "init" then
		 {code: "no-namespace", object: $r.dev, message: "\($r.dev) has no namespace, and no labels are known with which one could be created",
		  hint: (if $dimms == "" then "the kernel\u0027s messages (dmesg) tell why; ndctl list -R -N -i shows what there is" else "as root: ndctl read-labels -j \($dimms); the kernel\u0027s messages (dmesg) tell more" end)} else empty end)
	  elif ($ns | length) == 0 and ($stray | not) and ($r.max_available_extent // $r.available_size // 0) == 0 then
		{code: "labels", object: $r.dev, message: "\($r.dev) has no namespace, and the kernel finds no room for one: its labels may be of another format, or written by firmware",
		 hint: "look at them: ndctl read-labels -j \($dimms), ndctl check-labels \($dimms), and the kernel\u0027s messages (dmesg)"}
	  else empty end;

# What lies on a block device: [{code, object, message}]
def contents_of($dev):
	($inv.block["/dev/" + $dev] // {}) as $b
	| [($b.signatures // [])[] | {
			code: (if .type == "LVM2_member" then "lvm-signature" elif (.usage // "") == "pttable" then "partition-table" else "file-system" end),
			object: "/dev/\($dev)",
			message: "/dev/\($dev) holds \(.type)\(if (.uuid // "") != "" then " (UUID \(.uuid))" else "" end)"}]
	+ [($b.holders // [])[] | {
			code: "holder", object: ., message: "/dev/\($dev) is used by \(.)"}]
	+ [($b.mountpoints // [])[] | {
			code: "mount", object: ., message: "/dev/\($dev) is mounted on \(.)"}];

[ $inv.ndctl[] | . as $bus | (.regions // [])[] | select(.type == "pmem") | . as $r
  | [(.mappings // [])[] | .dimm] as $dimms
  | [($bus.dimms // [])[] | select(.dev as $d | $dimms | index($d) != null)] as $modules
  | [$inv.labels[] | select(.dev as $d | $dimms | index($d) != null)] as $labels
  | ($labels | length == ($dimms | length) and length > 0) as $has_labels
  | ($has_labels and all($labels[]; any(.index[]?; .signature == "NAMESPACE_INDEX"))) as $initialised
  | [(.namespaces // [])[] | select(is_seed | not) | .mode |= mode_today] as $ns
  | (if ($dimms | length) == 0 then				# e820, virtio-pmem: one namespace, no labels
       (if all($ns[]; .mode == "fsdax") then "adopt" else "reconfigure" end)
     elif $initialised then "create"
     elif $has_labels then "init"				# labels, but never used
     else "reconfigure" end) as $via			# DIMMs without room for labels
  # A namespace without labels is nobody's choice: only what lies on it counts.
  | [$ns[] | . as $n | select(is_ours | not)
     | (contents_of(.blockdev // "none")
        + (if $via == "create" or ((.mode != "raw") and ($via != "adopt")) then
             [{code: "namespace", object: .dev, message: "\(.dev)\(if (.name // "") != "" then " \"\(.name)\"" else "" end) (\([.mode, (select((.size // 0) > 0) | .size | human), (select(.state == "disabled") | "disabled, so that what it holds cannot be seen"), (select((.badblock_count // 0) > 0) | "\(.badblock_count) bad blocks")] | join(", "))) exists on \($r.dev)"}]
           else [] end)) as $what
     | select($what | length > 0)
     # What is disabled has no size; its labels have.
     | {dev, size: ([.size // 0, ([$labels[].label[]? | select(.uuid == $n.uuid or .uuid == $n.raw_uuid) | .rawsize // 0] | add // 0)] | max), mode, blockdev: (.blockdev // null), what: $what, freed: all($what[]; forced(.object))}] as $occupied
  # Labels of namespaces that the kernel could not put together.
  | ([$labels[] | .dev as $d | .label[]? | select(.uuid != "00000000-0000-0000-0000-000000000000")
      | . as $l | select(all($ns[]; .raw_uuid != $l.uuid and .uuid != $l.uuid))
      | {code: "label", object: $d, message: "\($d) has a label of namespace \($l.uuid)\(if $l.name != "" then " \"\($l.name)\"" else "" end), which is not there"}]
     | unique) as $stray
  | ([$occupied[].what[], $stray[]]) as $occupants
  | all($stray[]; forced(.object)) as $stray_freed
  | power_of($bus; $r) as $power
  | ([(if $power.safe == "no" and ($c.accept_volatile | not) then
	{code: "not-power-safe", object: .dev, message: "\(.dev) (\($bus.provider)) does not survive loss of power: \($power.why)",
	 hint: "profile dram does not need it; --accept-volatile uses it nevertheless, with mode planned_restart"} else empty end),
      ($modules[] | module_faults),
      (select(.state == "disabled") | {code: "disabled", object: .dev, message: "\(.dev) is disabled", hint: "ndctl enable-region \(.dev)"}),
      (select(.state != "disabled") | namespace_faults($r; $ns; $via; ($stray | length) > 0))]) as $faults
  | {
      dev, provider: $bus.provider, size, dimms: $dimms, ways: ([$dimms | length, 1] | max),
      numa_node: (.numa_node // -1), domain: (.persistence_domain // "unknown"),
      align: ([(.align // 0), 2 * MiB * ([$dimms | length, 1] | max)] | max),
      via: $via,
      # Why it is not used, and what only has to be said of it
      faults: $faults,
      concerns: [($modules[] | module_concerns),
        (([.badblock_count, ($ns[] | .badblock_count)] | map(. // 0) | max) as $bad
         | select($bad > 0) | {code: "bad-blocks", object: .dev, message: "\(.dev) has \($bad) bad blocks", command: "ndctl list -RM -r \(.dev)"})],
      only_namespace: (if $via == "create" then null else ($ns[0].dev // null) end),
      only_blockdev: (if $via == "create" then null else ($ns[0].blockdev // null) end),
      free: (if ($occupants | length) > 0 and ($stray_freed | not) then 0
             elif $via == "create" then
               (.max_available_extent // .available_size // 0)
               + ([$occupied[] | select(.freed) | .size] | add // 0)
             elif any($occupied[]; .freed | not) then 0
             elif any($ns[]; is_ours) then 0
             elif ($ns | length) > 0 then $ns[0].size // .size
             else .size end),
      occupied: $occupied, stray: $stray, occupants: $occupants,
      power_safe: $power.safe, power_why: $power.why, usable: ($faults | length == 0)
    }
] | sort_by(.dev) as $regions

# A namespace of ours, by the name under which it was recorded.
| ([$regions[] | .dev] ) as $region_names
| def ours($name):
	[$records[] | select(.undo.kind == "namespace" and .undo.name == $name) | .undo] | last as $rec
	| if $rec == null then null else
		[$inv.ndctl[] | .regions[]? | .dev as $r | .namespaces[]?
		 | select(([.uuid, .raw_uuid] | any(. != null and (. == $rec.uuid or . == $rec.found_uuid)))
		          or ($rec.via == "adopt" and .dev == $rec.dev and $r == $rec.region))
		 | {region: $r, dev, size: (.size // 0), mode, blockdev, disabled: (.state == "disabled")}] | first // null
	  end;

def region($name): $regions[] | select(.dev == $name);

# What a file system with its journal takes beyond a file of this size.
# With stripes of 2 MiB mkfs.xfs needs 600 MiB for its log to fit, and the namespace and LVM take some before.
def least_for_fs: if $c.filesystem == "xfs" then 640 * MiB else 0 end;
def namespace_for_file($bytes; $align): roundup([$bytes * 1.05 + 128 * MiB, least_for_fs] | max | floor; $align);
def file_in_namespace($bytes): [rounddown(($bytes - 128 * MiB) / 1.05 | floor; 2 * MiB), 0] | max;

# Allocation, as a state: {free: {region: bytes}, shared: [region], places, refusals}
def can_hold_more($r): $r.via == "create" or $r.via == "init";
def take($place):
	.free[$place.region] = (if can_hold_more(region($place.region)) then .free[$place.region] - $place.size else 0 end)
	| .places += [$place];

# Regions with room, best first: pinned, most DIMMs interleaved, on the node
# that was asked for, most room.
def candidates($alloc; $need; $pin):
	[$regions[] | select(.usable and ($pin == null or .dev == $pin))
	 | select($alloc.free[.dev] >= $need)]
	# Without a wish: where the cache is, once that is known.
	| ($c.numa_node // ([$alloc.places[] | select(.role == "cache") | region(.region).numa_node] | first)) as $node
	| sort_by([(if $node != null and .numa_node != $node then 1 else 0 end),
	           (if .power_safe == "yes" then 0 else 1 end), -.ways, -$alloc.free[.dev], .dev]);

# Of regions, for a hint: what is free on each, or why it is not
def free_on($for_mirror):
	[.[] | "\(.dev) \(if .usable | not then "is not used"
		elif $for_mirror and (.dimms | length) == 0 then "is on no DIMM that is known"
		elif any(.occupants[]; forced(.object) | not) and .free < .size then "is in use, \(.free | human) free"
		else .free | human end)"] | join(", ");
# Refusals that say why regions are not used, or only in part
def why_not:
	[.[] | .faults[], (.occupants[] | select(forced(.object) | not)
		| . + {hint: "--force-destroy=\(.object) destroys it, with all that is in it"})];

def no_room($what; $need; $pin):
	[$regions[] | select($pin == null or .dev == $pin)] as $all
	| .refusals += ([$all[] | select(.size >= $need)] | why_not)
		# who takes what is left needs no size
		+ [{code: "no-room", object: $what, message: (if $need > 0 then "no region has \($need | human) free for \($what)"
			else "no region can be used for \($what)" end),
		    hint: (if ($regions | length) == 0 then "there is no persistent memory; profile dram works without"
		           elif ($all | length) == 0 then "regions: \([$regions[].dev] | join(", "))"
		           else "free: \($all | free_on(false))" end)}];

# One namespace.  size null: all but $leave of the best region.
def place($p):
	. as $a
	| ours($p.name) as $o
	| if $o != null then
		.places += [$p + {region: $o.region, size: $o.size, namespace: $o.dev, present: true}]
	  else
		([candidates($a; ($p.size // $p.least); $p.pin)[]
		  | select($p.not_regions == null or (.dev as $d | $p.not_regions | index($d) == null))]
		 | if $p.like == null then .
		   else . as $all | [$all[] | select(.dev == $p.like)] + [$all[] | select(.dev != $p.like)] end
		 | first) as $r
		| if $r == null then no_room($p.role; ($p.size // $p.least); $p.pin)
		  else take($p + {region: $r.dev, present: false,
			size: (if can_hold_more($r) | not then $r.free
			       elif $p.size != null then roundup($p.size; $r.align)
			       else rounddown([$a.free[$r.dev] - ($p.leave // 0), $p.least] | max; $r.align) end)})
		  end
	  end;

# Two sector namespaces on regions that share no DIMM.  size null: as large as fits.
def mirror($p; $least):
	. as $a
	| ours($p.name + "-a") as $oa | ours($p.name + "-b") as $ob
	| ($p.size // $least) as $need
	| if $oa != null and $ob != null then
		.places += [{name: "\($p.name)-a", role: $p.role, mode: "sector", region: $oa.region, size: $oa.size, namespace: $oa.dev, present: true},
		            {name: "\($p.name)-b", role: $p.role, mode: "sector", region: $ob.region, size: $ob.size, namespace: $ob.dev, present: true}]
	  else
		[$regions[] | select(.usable and (.dimms | length) > 0 and $a.free[.dev] >= $need)
		 | select(($c.mirror_regions | length) == 0 or (.dev as $d | $c.mirror_regions | index($d) != null))] as $r
		# If one half is there, the other one is to be of its size.
		| (if $oa != null then [region($oa.region)] else $r end) as $left
		| (if $ob != null then [region($ob.region)] else $r end) as $right
		| [$left[] as $x | $right[] as $y | select($x.dev != $y.dev and ($oa != null or $ob != null or $x.dev < $y.dev)) | {x: $x, y: $y}] as $pairs
		| [$pairs[] | select(((.x.dimms - (.x.dimms - .y.dimms)) | length) == 0)] as $apart
		| ($apart | sort_by([
			([.x.dev, .y.dev] | map(select(. as $d | $a.places | any(.region == $d))) | length),
			(if $p.size == null then -([$a.free[.x.dev], $a.free[.y.dev]] | min) else ($a.free[.x.dev] + $a.free[.y.dev]) end),
			.x.dev, .y.dev]) | first) as $best
		| if $best == null then
			"one half of the mirror for \($p.role)" as $what
			| ([$regions[] | select(($c.mirror_regions | length) == 0 or (.dev as $d | $c.mirror_regions | index($d) != null))]) as $all
			| if ($pairs | length) > 0 then
				.refusals += [{code: "mirror-on-one-dimm", object: ([$r[].dev] | join(",")),
					message: "both halves of the mirror for \($p.role) would lie on the same DIMMs (\([$r[] | "\(.dev): \(.dimms | join(" "))"] | join("; ")))",
					hint: "a mirror needs \($need | human) free on two regions without a common DIMM"}]
				+ ($all | why_not)
			else
				.refusals += ($all | why_not)
				+ [$all[] | select(.usable and (.dimms | length) == 0)
				   | {code: "no-dimms", object: .dev, message: "it is not known which DIMMs \(.dev) is on, so that a mirror there would protect from nothing",
				      hint: "profile performance uses a region by itself"}]
				+ [{code: "no-room", object: $what,
				    message: (if ($r | length) == 1 then "only \($r[0].dev) has \($need | human) free for \($what), and a mirror needs two regions"
				              else "no region has \($need | human) free for \($what)" end),
				    hint: (if ($regions | length) == 0 then "there is no persistent memory; profile dram works without"
				           else "free: \($all | free_on(true))" end)}]
			end
		  else
			# Each half is rounded to its own region's alignment.
			([$a.free[$best.x.dev], $a.free[$best.y.dev]] | min) as $both
			| ([$best.x.align, $best.y.align] | max) as $align
			| (if $p.size != null then roundup($p.size; $align) else rounddown($both; $align) end) as $size
			| def half($suffix; $r; $o):
				if $o != null then .places += [{name: "\($p.name)-\($suffix)", role: $p.role, mode: "sector", region: $o.region, size: $o.size, namespace: $o.dev, present: true}]
				else take({name: "\($p.name)-\($suffix)", role: $p.role, mode: "sector", region: $r.dev, present: false,
					size: (if can_hold_more($r) then $size else $r.free end)}) end;
			  half("a"; $best.x; $oa) | half("b"; $best.y; $ob)
		  end
	  end;

# ---------------------------------------------------------------- what is wanted

($c.name) as $n
| ($c.mount_root + "/" + $n) as $root
| ([$regions[].size] | max // 0) as $largest
| ($c.wal_size // ([256 * MiB, ([64 * GiB, $largest / 8 | floor] | min)] | max)) as $wal_file
| (namespace_for_file($wal_file; 2 * MiB)) as $wal_ns
| (if $c.cache_size != null then namespace_for_file($c.cache_size; 2 * MiB) else null end) as $cache_ns
| ([256 * MiB, least_for_fs] | max) as $least

# With the pool, which has more than its pages.
| def mount_for($pool): $pool * 1.02 + 16 * MiB | roundup(floor; 2 * MiB);

{free: (reduce $regions[] as $r ({}; .[$r.dev] = $r.free)), places: [], refusals: [], shared: false}
| if $c.profile == "performance" then
	place({name: "\($n)-cache", role: "cache", mode: "fsdax", size: $cache_ns, least: $least, leave: $wal_ns, pin: $c.cache_region})
	| if (.refusals | length) > 0 then . else
		(.places[0].region) as $cache_region
		# One region without labels holds one namespace: WAL moves in with the cache.
		| if ours("\($n)-wal") == null and ([candidates(.; $wal_ns; $c.wal_region)[]] | length) == 0
		     and (can_hold_more(region($cache_region)) | not) and $c.wal_region == null
		  then .shared = true
		  else place({name: "\($n)-wal", role: "wal", mode: "fsdax", size: $wal_ns, least: $least, pin: $c.wal_region, like: $cache_region}) end
	  end
  elif $c.profile == "cache-redundant-wal" then
	# The halves first: they have less choice.  The best region for the cache is left to it if others do.
	(candidates(.; ($cache_ns // $least); $c.cache_region) | first | .dev // null) as $cache_region
	| (.places = [{region: $cache_region, role: "reserved"}]
	   | mirror({name: "\($n)-wal", role: "wal", size: ([$wal_file + roundup($wal_file / 16 | floor; 16 * MiB), least_for_fs] | max)}; $least)
	   | .places |= map(select(.role != "reserved")))
	| place({name: "\($n)-cache", role: "cache", mode: "fsdax", size: $cache_ns, least: $least, pin: $c.cache_region})
  elif $c.profile == "local-redundancy" then
	mirror({name: "\($n)-data", role: "data", size: $c.data_size}; $least)
  elif $c.profile == "replicated" then
	place({name: "\($n)-cache", role: "cache", mode: "fsdax", size: ($cache_ns // ($largest / 2 | floor)), least: $least, pin: $c.cache_region})
	| place({name: "\($n)-wal", role: "wal", mode: "fsdax", size: $wal_ns, least: $least, pin: $c.wal_region})
	| place({name: "\($n)-data", role: "data", mode: "fsdax", size: $c.data_size, least: $least, pin: $c.data_region})
  else . end
| . as $alloc
| ($alloc.places | map(. as $p | . + {dimms: region($p.region).dimms,
	numa_node: region($p.region).numa_node})) as $places
| ([$places[] | select(.role == "cache") ] | first // null) as $cache_place
| ($c.profile | IN("local-redundancy", "dram")) as $in_dram
| (if $cache_place != null then region($cache_place.region) else null end) as $cache_region

# The pool's size: what was asked for, else what its file system has room for.
| (if $c.cache_size != null then $c.cache_size
   elif $in_dram then rounddown(($inv.memory_total // 0) / 4 | floor; 2 * MiB)
   elif $cache_place == null then 0
   else file_in_namespace($cache_place.size - (if $alloc.shared then $wal_ns else 0 end)) end) as $pool_size
# A disk writes and reads an image with 100 MB/s at least.  systemd forces a reboot
# after 30 minutes (reboot.target), of which the server needs some.
| (60 + ($pool_size / 100000000 | ceil)) as $image_seconds
| 1500 as $most_save_seconds
| (($c.keep_over_reboot // "") != "") as $keep

| ($alloc.refusals
   + (if $cache_place != null and $c.mode == "always" and $cache_region.power_safe == "no" then
	[{code: "not-power-safe", object: $cache_region.dev, message: "mode always needs memory that survives loss of power: \($cache_region.power_why)", hint: "--mode=planned_restart"}] else [] end)
   + (if $cache_place != null and $pool_size < 2 * MiB then
	[{code: "no-room", object: "cache", message: "\($cache_place.region) has no room for a pool beside the WAL", hint: "--wal-size=SIZE makes the WAL smaller"}] else [] end)
   + (if $cache_place != null and $c.cache_size != null and ($cache_place.present // false) == false
	and file_in_namespace($cache_place.size) < $pool_size then
	[{code: "no-room", object: "cache", message: "a pool of \($pool_size | human) does not fit into \($cache_place.size | human) on \($cache_place.region)", hint: "--cache-size=\(file_in_namespace($cache_place.size) / MiB | floor)MB fits"}] else [] end)
   # Of an earlier run, or chosen by name, and not to be used as they are now
   + [$records[] | select(.undo.kind == "namespace") | .undo as $u | ours($u.name)
	| (select(. != null and .disabled) | {code: "disabled", object: .dev, message: "\(.dev), which \($n) is set up with, is disabled", hint: "ndctl enable-namespace \(.dev)"}),
	  (select(. == null) | $regions[] | select(.dev == $u.region) | .faults[] | select(.code | IN("locked", "disabled")))]
   + (if any($inv.ndctl[].regions[]?.namespaces[]?; .mode | IN("memory", "dax"))
	and any($places[]; (.present | not) and region(.region).via != "adopt") then
	[{code: "old-ndctl", object: "ndctl", message: "this ndctl is older than version 60, and cannot make namespaces of mode fsdax or devdax", hint: "install a newer ndctl"}] else [] end)
   + [$inv.cluster | select(.running == true)
	| {code: "server-running", object: $c.pgdata, message: "a server runs on \($c.pgdata)", hint: "stop it first: pg_ctl -D \($c.pgdata) stop -m fast"}]
   + [$c.force_destroy[] as $f
	| select(any($regions[].occupants[]; .object == $f) | not)
	| {code: "no-such-object", object: $f, message: "--force-destroy=\($f) names nothing that is in the way", hint: "give the exact name that a refusal shows"}]
   + [[$c.cache_region, $c.wal_region, $c.data_region, $c.mirror_regions[]] | .[] | select(. != null) as $r
	| select($region_names | index($r) == null)
	| {code: "no-such-region", object: $r, message: "there is no region \($r)", hint: "regions: \($region_names | join(", "))"}]
   | unique) as $refusals

| ([$places[].region] | unique) as $used
| ([$regions[] | select(.dev as $d | $used | index($d) != null) |
	(select(.power_safe == "unknown") | {code: "domain-unknown", object: .dev, message: "\(.dev): \(.power_why)"}),
	(select(.power_safe == "no") | {code: "not-power-safe", object: .dev, message: "\(.dev): \(.power_why)"}),
	(.faults[] | select(.code == "unhealthy") | {code: "health", object, message, command: "ndctl list -DH -d \(.object)"}),
	.concerns[]]
   + (if $c.numa_node != null and $cache_place != null and $cache_place.numa_node != $c.numa_node then
	[{code: "numa", object: $cache_place.region, message: "the cache is on node \($cache_place.numa_node), not on \($c.numa_node)"}] else [] end)
   + ([$places[].numa_node] | unique | if length > 1 and ($c.profile | IN("performance", "replicated")) then
	[{code: "numa", object: "places", message: "cache, WAL and data are on different NUMA nodes: \(map(tostring) | join(", "))"}] else [] end)
   + (if $alloc.shared then [{code: "shared", object: $cache_place.region, message: "cache and WAL share one file system: without labels \($cache_place.region) holds one namespace"}] else [] end)
   + (if $in_dram and $pool_size > ($inv.memory_total // 0) then
	[{code: "memory", object: "cache", message: "the cache (\($pool_size | human)) is larger than memory (\(($inv.memory_total // 0) | human))"}] else [] end)
   + (if $keep and $image_seconds > $most_save_seconds then
	[{code: "slow-image", object: "image", message: "at 100 MB/s it takes \($image_seconds / 60 | floor) minutes to save the cache, and a reboot leaves \($most_save_seconds / 60) minutes for that", command: "docs/reboot.md"}] else [] end)
  ) as $warnings

# ---------------------------------------------------------------- how

| "\($root)/cache" as $cache_mount
| mount_for($pool_size) as $dram_size
| (if $c.profile | IN("performance", "replicated", "cache-redundant-wal") then
	(if $alloc.shared then "\($cache_mount)/wal" else "\($root)/wal/wal" end) else null end) as $wal_dir
| (if $c.profile | IN("local-redundancy", "replicated") then "\($root)/data/pgdata" else null end) as $data_dir

| def fs_steps($what; $role; $dax):
	{kind: "filesystem", device: $what, type: $c.filesystem, dax: $dax, role: $role},
	{kind: "mount", device: $what, where: "\($root)/\($role)", type: $c.filesystem, dax: $dax, role: $role};

([ # what --force-destroy named goes first
   ($regions[] | select(.dev as $d | $used | index($d) != null)
    | (.via | IN("create", "init")) as $destroyed
    | ((.occupied[] | select(.freed) | {kind: "destroy", namespace: .dev, blockdev, $destroyed, what: [.what[].object], mounts: [.what[] | select(.code == "mount") | .object],
	lvm: any(.what[]; .code == "lvm-signature")}),
       (.stray | map(.object) | unique | .[] | {kind: "destroy-labels", dimm: ., region: null}))),
   ($regions[] | select((.dev as $d | $used | index($d) != null) and .via == "init" and any($places[]; .present | not))
    | {kind: "init-labels", region: .dev, dimms}),
   ($places[] | . as $p | region(.region) as $r
    | {kind: "namespace", name, region, mode, size, present: (.present // false),
       via: (if $r.via == "init" then "create" else $r.via end),
       existing: (if $r.via | IN("reconfigure", "adopt") then $r.only_namespace else null end)}),
   ($places[] | select(.mode == "fsdax") | .name as $name | .role as $role | fs_steps("ns:\($name)"; $role; true)),
   (([$places[] | select(.mode == "sector")] | select(length == 2)) as $halves
    | $halves[0].role as $role
    | {kind: "mirror", vg: "\($n)_vg", lv: $role, halves: [$halves[].name]},
      fs_steps("lv:\($n)_vg/\($role)"; $role; false)),
   (select($in_dram) | {kind: "memory-mount", type: $c.memory, where: $cache_mount, size: $dram_size}),
   {kind: "directory", path: "\($cache_mount)/pool"},
   {kind: "cluster", waldir: $wal_dir, data: $data_dir},
   ($places[] | select(.mode == "fsdax") | {kind: "check-map-sync", directory: "\($root)/\(.role)", required: (region(.region).power_safe != "no")}),
   {kind: "pool", directory: "\($cache_mount)/pool", size: $pool_size},
   {kind: "boot"},
   (select($keep) | {kind: "keep", mount: $cache_mount, data: $data_dir, load_seconds: $image_seconds, save_seconds: ([$image_seconds, $most_save_seconds] | min)}),
   {kind: "conf"}
 ] | if ($refusals | length) > 0 then [] else to_entries | map({n: (.key + 1)} + .value) end) as $steps

| {
   profile: $c.profile, name: $n, ok: ($refusals | length == 0), refusals: $refusals, warnings: ($warnings | unique),
   regions: [$regions[] | {dev, provider, size, free, ways, dimms, numa_node, persistence_domain: .domain, power_safe, via, occupants, faults, concerns}],
   places: [$places[] | {name, role, mode, region, dimms, numa_node, size, present}],
   cache: {kind: (if $in_dram then $c.memory else "fsdax" end), directory: "\($cache_mount)/pool", size: $pool_size},
   wal_directory: $wal_dir, data_directory: $data_dir,
   steps: $steps,
   conf: ([
      "shared_buffers = \($pool_size | setting)",
      "pcache.mode = \($c.mode)",
      "pcache.directory = '\($cache_mount)/pool'"]
      + (if $wal_dir != null then ["max_wal_size = \(rounddown($wal_file * 0.6 | floor; MiB) | setting)",
	"min_wal_size = \([32 * MiB, rounddown($wal_file / 5 | floor; MiB)] | max | setting)"] else [] end)
      + (if $c.profile == "replicated" then ["wal_level = replica", "synchronous_commit = on", "synchronous_standby_names = '*'"] else [] end)),
   notes: ((if $c.profile == "replicated" then ["No local redundancy: set up a standby on another host (pg_basebackup -R), with the same profile.",
			"Until a synchronous standby is connected commits wait: set synchronous_standby_names last."]
	elif $c.profile == "performance" then ["WAL is on one set of DIMMs: when it fails, commits since the last archived segment are lost. See profile cache-redundant-wal."]
	else [] end)
	+ ([$regions[] | select($c.profile != "dram" and .usable and .free >= $least and (.dev as $d | $used | index($d) == null))]
	   | if length == 0 then [] else
		["Not used: \(map("\(.dev), \(.free | human)") | join("; ")). \(if all($regions[]; (.dimms | length) == 1) and length > 1 then
		"Each DIMM is a region of its own. Interleaved, those of a socket are one region; the vendor\u0027s tool or the firmware changes that, and all that is stored is lost. Otherwise, " else "" end)--cache-region, --wal-region and --data-region place each part, and another --name sets up another cluster."] end)
	+ (if $inv.selinux == true then ["SELinux is on: a service may use what lies there only after: semanage fcontext -a -t postgresql_db_t \u0027\($root)(/.*)?\u0027 && restorecon -R \($root)"] else [] end))
  }
