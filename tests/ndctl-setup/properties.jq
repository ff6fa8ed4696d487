# What is true of every plan, on whatever machine and with whatever options.
#
# {plan, list, labels, cmdline, signatures, arguments} in: the plan, the machine as ndctl and
# the kernel show it, the disks with something on them, and the options.  Out: what is not so.
# It computes from the machine, not from what the planner says of it.

def MiB: 1048576;
def list: if type == "array" then .[] else . end;
def bytes: capture("^(?<n>[0-9]+)(?<unit>[kMG]?B?)$") | (.n | tonumber) * {"": 1, B: 1, kB: 1024, MB: MiB, GB: (1024 * MiB)}[.unit];
def total: add // 0;

.plan as $plan | .arguments as $arguments | .labels as $labels | .signatures as $signatures | .cmdline as $cmdline
| def option($name): $arguments[] | select(startswith("--\($name)=")) | ltrimstr("--\($name)=");
  def not_so($what; condition): if [condition] | all then empty else $what end;
[option("force-destroy")] as $forced
| ($arguments | index("--accept-volatile") != null) as $accepted
| [.list | list | . as $bus | .regions[]? | [(.mappings // [])[].dimm] as $dimms
   | {dev, size, available_size, max_available_extent, state, dimms: $dimms, provider: $bus.provider,
      align: ([.align // 0, 2 * MiB * ([$dimms | length, 1] | max)] | max),
      modules: [$bus.dimms[]? | select(.dev | IN($dimms[]))],
      labels: [$labels[] | select(.dev | IN($dimms[]))],
      namespaces: [.namespaces[]? | select((.size // 0) > 0)]}] as $regions
| [$plan.places[] | select(.present | not)] as $new
| [$plan.steps[].commands[]] as $commands
| [$plan.steps[] | select(.kind == "destroy") | .namespace] as $destroyed
| def region($dev): $regions[] | select(.dev == $dev);
  def conf($name): $plan.conf[] | select(startswith("\($name) = ")) | ltrimstr("\($name) = ");
  def place_of($role): $plan.places[] | select(.role == $role);
  def step($kind): $plan.steps[] | select(.kind == $kind);
  def numbers(filter): [$plan.steps[] | select(filter) | .n];

[
# A refused plan has no steps, and a refusal says what to do: a command, an option, a profile,
# somebody to ask, or how much there is.
not_so("ok, refusals and steps agree"; $plan.ok == ($plan.refusals == []), $plan.ok == ($plan.steps != [])),
($plan.refusals[] | not_so("a refusal without a way out: \(.)"; (.code, .object, .message | length > 0),
	(.hint // "" | test("ndctl|dmesg|pg_ctl|--[a-z]|profile [a-z]|vendor|exact name|^regions: |^free: .*([0-9] [kMG]i?B|in use|not used|no DIMM)|a mirror needs [0-9]")))),

# Nothing is destroyed that was not named.
($commands[] | (capture("destroy-namespace (-f )?(?<object>\\S+)") // empty | .object) as $object
	| not_so("destroyed: \($object)"; $object | IN($forced[]))),
($commands[] | (capture("--reconfig=(?<object>\\S+)") // empty | .object) as $object
	| $regions[] | . as $r | .namespaces[] | select(.dev == $object)
	| not_so("made anew, with what is on it: \($object)"; .mode == "raw" or (.dev | IN($forced[])),
		(.blockdev // "" | IN($signatures[]) | not) or ("/dev/" + .blockdev | IN($forced[])))),
($commands[] | select(test("^ndctl (init|zero)-labels")) | [scan("nmem[0-9]+")] as $dimms
	| $regions[] | select(any(.dimms[]; IN($dimms[])))
	| not_so("labels made anew on \(.dev)"; all(.labels[]; (all(.index[]?; .signature != "NAMESPACE_INDEX") and all(.label[]?; .uuid == "00000000-0000-0000-0000-000000000000")) or (.dev | IN($forced[]))),
		all(.namespaces[]; .uuid == null))),
($commands[] | select(test("^(wipefs|mkfs|pvcreate|vgcreate|lvcreate)")) | [scan("/dev/\\S+")][] as $disk
	| not_so("written to: \($disk)"; $disk | IN(($new[].name | "/dev/{\(.)}"), (step("mirror") | "/dev/\(.vg)/\(.lv)"), (step("destroy") | "/dev/\(.blockdev)")))),

# Sizes add up.
($regions[] | . as $r | [$new[] | select(.region == $r.dev)] as $here | select($here != [])
	| ([.namespaces[] | select(.uuid != null and (.dev | IN($destroyed[]) | not)) | .size] | total) as $taken
	| ([.namespaces[] | select(.dev | IN($destroyed[])) | .size] | total) as $given
	| ($plan.regions[] | select(.dev == $r.dev) | .via) as $via
	| if $via | IN("create", "init") then
		not_so("more than there is on \(.dev)"; ([$here[].size] | total) <= .size - $taken,
			$via == "init" or ([$here[].size] | total) <= (.max_available_extent // .available_size // 0) + (if $destroyed == [] then 0 else .size end)),
		not_so("not aligned on \(.dev)"; $here[].size % .align == 0),
		($here[] | select(.role == "cache" and $plan.profile == "performance" and ([option("cache-size")] == []) and $given == 0)
			| not_so("room is left on \(.region)"; [(if $via == "init" then $r.size else $r.max_available_extent // $r.available_size end) - ([$here[].size] | total) | . < 4 * $r.align]))
	  else not_so("\(.dev) holds one namespace"; ($here | length) == 1, $here[0].size == .namespaces[0].size) end),
(select($plan.ok) | $new[] | . as $place | [step("namespace") | select(.name == $place.name)]
	| not_so("the namespace of \($place.name)"; length == 1, .[0] as $s | $s.region == $place.region, $s.mode == $place.mode, $s.size == $place.size,
		$s.via == "adopt" or any($s.commands[]; contains("--mode=\($place.mode) ")
			and (contains("--reconfig=\($s.existing)") or contains("--region=\($place.region) --name=\($place.name) --size=\($place.size) "))
			and contains({fsdax: "--map=dev --align=2M", sector: "--sector-size=4096"}[$place.mode])))),
(option("cache-size") | not_so("the cache's size"; $plan.cache.size == bytes)),
not_so("the pool's size and place"; conf("shared_buffers") | bytes == ($plan.cache.size / MiB | floor) * MiB),
(select($plan.ok) | $plan.cache as $cache
	| not_so("the pool's step"; [step("pool")] | length == 1, .[0].size == $cache.size, .[0].directory == $cache.directory, conf("pcache.directory") == "'\($cache.directory)'"),
	  (step("memory-mount") | not_so("the pool does not fit into memory"; .size >= $cache.size * 1.02, (.where as $where | $cache.directory | startswith($where)))),
	  (place_of("cache") | not_so("the pool does not fit into its namespace"; .size >= $cache.size * 1.05
		+ (if any($plan.warnings[]; .code == "shared") then conf("max_wal_size") | bytes else 0 end)))),
(conf("max_wal_size") | bytes as $most | not_so("WAL does not fit"; (conf("min_wal_size") | bytes) <= ([$most, 32 * MiB] | max), all(place_of("wal"); .size > $most))),

# Where it lies.
($regions[] | .dev as $dev
	| [.state != "disabled", $accepted or (.provider != "virtio-pmem" and (.provider != "e820" or ($cmdline | test("memmap=[^ ]*!") | not))),
		(.modules[] | .state != "disabled", (.security | IN("locked", "overwrite") | not), (.health.health_state | IN("fatal", "critical") | not),
			(to_entries[] | select((.key | startswith("flag_")) and .key != "flag_smart_event") | .value != true))] as $sound
	| not_so("how namespaces come to be on \($dev)"; all($plan.regions[] | select(.dev == $dev); .via == "create")
		== (.labels != [] and (.labels | length) == (.dimms | length) and all(.labels[]; any(.index[]?; .signature == "NAMESPACE_INDEX")))),
	  not_so("what is wrong with \($dev)"; all($sound[]; .) or any($plan.regions[] | select(.dev == $dev) | .faults[]; .hint != null)),
	  not_so("used, but not sound or not safe: \($dev)"; all($sound[]; .) or all($new[]; .region != $dev))),
not_so("always on what is not safe"; conf("pcache.mode") != "always" or ($plan.ok | not) or all($plan.places[]; region(.region).provider | IN("virtio-pmem", "e820") | not)),
not_so("the mode"; conf("pcache.mode") == ([option("mode")][0] // "planned_restart")),
(select($plan.ok) | ({performance: ["cache fsdax", "wal fsdax"], "cache-redundant-wal": ["cache fsdax", "wal sector", "wal sector"],
	"local-redundancy": ["data sector", "data sector"], replicated: ["cache fsdax", "data fsdax", "wal fsdax"], dram: []}[$plan.profile]
	| if any($plan.warnings[]; .code == "shared") then . - ["wal fsdax"] else . end) as $wanted
	| not_so("what \($plan.profile) consists of"; [$plan.places[] | "\(.role) \(.mode)"] | sort == $wanted)),
([$plan.places[] | select(.mode == "sector")] | select(length == 2)
	| not_so("the halves of the mirror"; .[0].dimms as $a | .[1].dimms as $b | $a != [] and $b != [] and $a - $b == $a, (any(.[]; .present) or .[0].size == .[1].size))),
(("cache", "wal", "data") as $role | option("\($role)-region") as $dev | place_of($role) | select(.mode == "fsdax") | not_so("\($role) is not on \($dev)"; .region == $dev)),
(option("numa-node") | tonumber as $node | not_so("not on node \($node)"; all(place_of("cache"); .numa_node == $node) or any($plan.warnings[]; .code == "numa"))),

# Steps come one after the other, and each finds what it needs.
not_so("the steps' numbers"; [$plan.steps[].n] == [range(1; ($plan.steps | length) + 1)]),
(step("filesystem") | . as $fs | not_so("the file system on \(.device)";
	(if .device | startswith("ns:") then numbers(.kind == "namespace" and "ns:" + .name == $fs.device) else numbers(.kind == "mirror") end | length == 1 and .[0] < $fs.n),
	(numbers(.kind == "mount" and .device == $fs.device and .dax == $fs.dax) | length == 1 and .[0] > $fs.n))),
(step("mount") | not_so("dax on \(.where)"; .dax as $dax | all(.commands[] | select(startswith("mount ")); test("[ ,]dax") == $dax), .dax == (.device | startswith("ns:")))),
(select($plan.ok) | not_so("the order of the steps"; [numbers(.kind | IN("mount", "memory-mount"))[], numbers(.kind == "cluster")[], numbers(.kind == "pool")[], numbers(.kind == "boot")[], numbers(.kind == "conf")[]]
	| . == sort, length >= 4))
]
