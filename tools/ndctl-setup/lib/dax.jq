# Dax devices: for lib/plan.jq, and for the verbs that look for them again.
# It only computes.

# The devices of "daxctl list -D -R -i" that have a size, with the namespace that
# a device is made of, if any, and with who has it open.
def all_devices($dax; $ndctl; $users):
	[$dax[] | . as $region | (.devices // [])[] | select((.size // 0) > 0) | .chardev as $dev
	 | ([$ndctl[] | (.regions // [])[] | .dev as $r | (.namespaces // [])[]
	     | select(.chardev == $dev or any((.daxregion.devices // [])[]; .chardev == $dev))
	     | {region: $r, namespace: .dev, name: (.name // ""), uuid: (.raw_uuid // .uuid)}] | first
	    // {region: null, namespace: null, name: "", uuid: null})
	   + {dev: $dev, size, node: (.target_node // -1), mode, disabled: (.state == "disabled"),
	      # What is persistent hangs below a bus of libnvdimm.
	      volatile: ($region.path != null and ($region.path | test("/ndbus[0-9]+/") | not)),
	      online: .online_memblocks, total: .total_memblocks, movable,
	      users: ($users[$dev] // [])}]
	| sort_by(.dev);

# How it is now.  Only root is told how much is online.
def now:
	if .mode != "system-ram" then "devdax"
	elif .online == null or .online == .total then "online"
	elif .online == 0 then "offline"
	else "partly" end;

# found($records; $devices): [{record, device}], the records of kind "dax" with
# their devices, or null.  Names may be others after a boot.  A namespace has
# a UUID.  Volatile devices of the same size on the same node are as good as one
# another: the one with the recorded name is taken if it is there.
def found($records; $devices):
	def same($r):
		if ($r.uuid // "") != "" then .uuid == $r.uuid
		else .volatile and (.size | tostring) == $r.size and (.node | tostring) == $r.node end;
	def take($by_name):
		reduce range(0; $records | length) as $i (.;
			$records[$i] as $r
			| (if .devices[$i] != null then null
			   else [.left[] | select(same($r) and (.dev == $r.dev or ($by_name | not)))] | first end) as $d
			| if $d == null then . else .devices[$i] = $d | .left -= [$d] end);
	{left: $devices, devices: [$records[] | null]} | take(true) | take(false)
	| .devices as $d
	| [range(0; $records | length) | {record: $records[.], device: $d[.]}];

# A list of nodes as mount options take it: commas would end the option's value
# where mount(8) uses the new interface of the kernel.  null if it needs them.
def node_range:
	unique
	| if length == 0 then null
	  elif length == 1 then "\(.[0])"
	  elif .[-1] - .[0] == length - 1 then "\(.[0])-\(.[-1])"
	  else null end;
def node_policy:
	node_range | if . == null then null elif test("-") then "interleave:\(.)" else "bind:\(.)" end;
