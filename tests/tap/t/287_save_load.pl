
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache save and load: a pool that is lost with its memory is made again from
# an image, and the start is as if it had never been away.  Whatever is wrong
# with the image, or interrupts its way, costs pages or warmth, and never gives a
# wrong page.

use strict;
use warnings FATAL => 'all';

use Fcntl qw(:flock);
use File::Copy qw(copy);
use JSON::PP;
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use constant {
	HEADER => 4096,
	CHUNKS => 8192,
	INDEX_OFFSET => 104,		# in the header
	ENTRY_SIZE => 56,			# in the index
};

my $node = new_node('main', shared_buffers => '32MB', init => { extra => ['--data-checksums'] });
my $data = $node->data_dir;
my $pool = pool_file($node);
my $image = "$data.pcache-image";
my $other = "$data.other-image";
my $CREATED = qr/^the pool was created by this start$/;
my ($valid, $sums);

# What a reboot of the host does to a pool in memory.
sub lose_pool { unlink $pool or die "$pool: $!"; return }

# Start, warm up, and stop, so that all of it is saved by the server.
sub run_and_stop
{
	$node->start;
	$valid = warm_up($node);
	$node->stop;
	return;
}

# The next start keeps so many pages less than were valid.
sub starts_warm
{
	my ($name, $lost) = @_;
	my $verdict = verify_json($node, '--pages');
	my $offset = log_offset($node);

	is($verdict->{rc}, 0, "$name: verify says warm");
	is($verdict->{compared}{impossible}, 0, "$name: no page that must not be");
	$node->start;
	my $outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "$name: warm");
	is($outcome->{kept}, $outcome->{saved} - ($lost // 0), "$name: kept what was saved");
	is($outcome->{saved}, $valid, "$name: as many as were valid") if !$lost;
	is(relation_reads($node), 0, "$name: nothing is read") if !$lost;
	is_deeply(checksums($node), $sums, "$name: contents");
	$node->stop;
	return;
}

sub starts_cold
{
	my ($name, $reason) = @_;
	my $offset = log_offset($node);

	$node->start;
	is_cold($node, $offset, $reason, $name);
	$sums = checksums($node) if $name eq 'crash';    # its unlogged table is empty now
	is_deeply(checksums($node), $sums, "$name: contents");
	$valid = warm_up($node);
	$node->stop;
	return;
}

$node->start;
load_data($node);
# more than three chunks
$node->safe_psql('postgres', "CREATE TABLE t_filler AS SELECT repeat('x', 500) FROM generate_series(1, 24000)");
$sums = checksums($node);
$valid = warm_up($node);
$node->stop;

# ---------------------------------------------------------------------------
# There and back, by all ways.
# ---------------------------------------------------------------------------
for my $how ([], [qw(--compress lz4)], [qw(--compress zstd -j 3)], [qw(-j 2)], [ '--to' => $other ])
{
	my $name = @$how ? "@$how" : 'plain';
	my $file = ($how->[0] // '') eq '--to' ? $other : $image;
	my @from = $file eq $other ? ('--from' => $other) : ();
	my $saved = verb_json($node, 'save', @$how);

	is($saved->{rc}, 0, "$name: saved");
	is($saved->{pages_saved}, $valid, "$name: all pages");
	is($saved->{image}, $file, "$name: where");
	is((stat $file)[2] & 07777, 0600, "$name: permissions");
	is((stat $file)[7], $saved->{image_size}, "$name: size");
	ok(!-e "$file.tmp", "$name: no temporary file");

	is(verb_json($node, 'load', @from)->{already_warm}, JSON::PP::true, "$name: nothing to load while the pool is there");
	ok(-e $file, "$name: the image stays then");

	lose_pool();
	my $planned = verb_json($node, 'load', '--dry-run', @from);
	is($planned->{rc}, 0, "$name: dry run");
	is($planned->{pages_loaded}, $valid, "$name: dry run, pages");
	ok(!-e $pool && -e $file, "$name: a dry run changes nothing");
	my $loaded = verb_json($node, 'load', @from, ($how->[0] // '') eq '-j' ? @$how : ());
	is($loaded->{rc}, 0, "$name: loaded");
	is($loaded->{pages_loaded}, $valid, "$name: all pages were loaded");
	is($loaded->{pages_kept}, $valid, "$name: and will be kept");
	is($loaded->{pages_in_pool}, $saved->{pages_in_pool}, "$name: as many as the pool had");
	ok(!-e $file, "$name: the image is gone");
	starts_warm($name);
}

# A server that would not start with it: the image may be needed once more.
verb_json($node, 'save');
patch_superblock($pool, state => STATE_EMPTY);
$node->adjust_conf('postgresql.conf', 'shared_buffers', '4TB');
$node->append_conf('postgresql.conf', 'pcache.required = on');
my $result = verb_json($node, 'load');
is($result->{rc}, 1, 'no room for shared_buffers, required: exit status');
is($result->{next_start}, 'none', 'no room for shared_buffers, required: the server would not start');
is($result->{loaded}, JSON::PP::true, 'no room for shared_buffers, required: loaded');
ok(-e $image, 'no room for shared_buffers, required: the image stays');
$node->adjust_conf('postgresql.conf', 'pcache.required', undef);
$node->adjust_conf('postgresql.conf', 'shared_buffers', '32MB');
unlink $image;
starts_warm('no room for shared_buffers, required, and then');

# ---------------------------------------------------------------------------
# What is not loaded.
# ---------------------------------------------------------------------------
# no image
lose_pool();
$result = verb_json($node, 'load');
is($result->{rc}, 2, 'no image: exit status');
like($result->{detail}, qr/there is no image "\Q$image\E"/, 'no image: reason');
ok(!-e $pool, 'no image: no pool was made');
starts_cold('no image', $CREATED);

# of another stop than the last one
verb_json($node, 'save');
copy($image, $other) or die;
chmod 0600, $other;
run_and_stop();
lose_pool();
$result = verb_json($node, 'load');
is($result->{rc}, 2, 'image of another stop: exit status');
like($result->{detail}, qr/control file was changed|last checkpoint of the cluster is at|incarnation/, 'image of another stop: reason');
ok(-e $image, 'image of another stop: it stays');
ok(!-e $pool, 'image of another stop: no pool was made');
is(verb_json($node, 'load', '--dry-run')->{rc}, 2, 'image of another stop: a dry run knows');
starts_cold('image of another stop', $CREATED);

# a crash, and a server that runs
verb_json($node, 'save');
$node->start;
for my $verb (qw(save load))
{
	my $refused = verb_json($node, $verb);
	is($refused->{rc}, 1, "$verb: refuses a running server");
	like($refused->{stderr}, qr/server is running|is running/, "$verb: says so");
}
$node->stop('immediate');
$result = verb_json($node, 'save');
is($result->{rc}, 2, 'crash: nothing to save');
is($result->{image}, undef, 'crash: no image');
lose_pool();
$result = verb_json($node, 'load');
is($result->{rc}, 2, 'crash: not loaded');
like($result->{detail}, qr/not shut down cleanly|incarnation/, 'crash: reason');
starts_cold('crash', $CREATED);

# the cache is switched off, and no pool is left
verb_json($node, 'save');
set_mode($node, 'off');
$result = verb_json($node, 'save');
is($result->{rc}, 2, 'mode off: not saved');
is($result->{detail}, 'pcache.mode is off', 'mode off: why not');
lose_pool();
$result = verb_json($node, 'load');
is($result->{rc}, 2, 'mode off: not loaded');
is($result->{detail}, 'pcache.mode is off', 'mode off: reason');
ok(!-e $pool, 'mode off: no pool was made');
set_mode($node, 'planned_restart');
unlink $image;
$result = verb_json($node, 'save');
is($result->{rc}, 2, 'no pool: nothing to save');
like($result->{detail}, qr/could not open persistent cache pool/, 'no pool: reason');
starts_cold('no pool', $CREATED);

# a file that is not ours to replace
unlink $image;
append_to_file($image, 'precious' x 2000);
$result = verb_json($node, 'save');
is($result->{rc}, 1, 'foreign file: refused');
like($result->{stderr}, qr/exists and is not an image of this cluster/, 'foreign file: says so');
is(-s $image, 16000, 'foreign file: untouched');
$result = verb_json($node, 'load');
is($result->{rc}, 0, 'foreign file: not even opened while the pool is warm');
lose_pool();
$result = verb_json($node, 'load');
is($result->{rc}, 1, 'foreign file: not loaded');
like($result->{stderr}, qr/is not an image of a persistent cache|header/, 'foreign file: reason');
unlink $image;
append_to_file("$image.tmp", 'precious' x 2000);
starts_cold('foreign file', $CREATED);

$result = verb_json($node, 'save');
is($result->{rc}, 1, 'foreign temporary file: refused');
like($result->{stderr}, qr/"\Q$image.tmp\E" exists and is not an image of this cluster/, 'foreign temporary file: says so');
is(-s "$image.tmp", 16000, 'foreign temporary file: untouched');
unlink "$image.tmp";

# a directory where others can exchange names
{
	my $shared = PostgreSQL::Test::Utils::tempdir() . '/shared';
	mkdir $shared;
	chmod 0777, $shared;
	$result = verb_json($node, 'save', '--to' => "$shared/image");
	is($result->{rc}, 1, 'shared directory: refused');
	like($result->{stderr}, qr/other users can replace/, 'shared directory: says so');
	ok(!-e "$shared/image", 'shared directory: nothing was written');
}
# a file that others could have changed: nothing but that says whose it is
is(verb_json($node, 'save')->{rc}, 0, 'writable for others: saved');
rename $pool, "$pool.away" or die;
for my $mode (0620, 0602)
{
	chmod $mode, $image or die;
	$result = verb_json($node, 'load');
	is($result->{rc}, 1, sprintf 'mode %04o: not loaded', $mode);
	like($result->{stderr}, qr/"\Q$image\E"/, sprintf 'mode %04o: says of which file', $mode);
	ok(!-e $pool, sprintf 'mode %04o: no pool was made', $mode);
}
unlink $image;
rename "$pool.away", $pool or die;

for my $bad ([ 'save', '--compress' => 'rot13' ], [ 'save', '--from' => 'x' ], [ 'load', '-j', '0' ])
{
	is((pcache($node, @$bad))[0], 1, "@$bad: refused");
}
# ours is the test's environment: no systemd, or a host that stays
$result = verb_json($node, 'save', '--if-host-stops');
ok($result->{rc} == 0 ? $result->{host_stays} : $result->{stderr} =~ /could not find out whether the host is going down/, 'the host stays, or nobody knows');
ok(!-e $image, 'nothing was saved then');

# the same, with a stub of systemctl
{
	my $bin = PostgreSQL::Test::Utils::tempdir();
	for my $state ([ stopping => 1 ], [ running => 0 ], [ degraded => 0 ], [ unknown => undef ])
	{
		unlink "$bin/systemctl";
		append_to_file("$bin/systemctl", "#!/bin/sh\necho $state->[0]\n" . ($state->[0] eq 'running' ? '' : "exit 1\n"));
		chmod 0755, "$bin/systemctl";
		local $ENV{PATH} = "$bin:$ENV{PATH}";
		# What cannot be found out must not pass for a host that stays.
		is(verb_json($node, 'save', '--if-host-stops')->{rc}, defined $state->[1] ? 0 : 1, "host is $state->[0]: exit status");
		is(!!-e $image, !!$state->[1], "host is $state->[0]: image");
		unlink $image;
	}
}

# ---------------------------------------------------------------------------
# Damaged images: a chunk costs its pages, anything else all of them.
# ---------------------------------------------------------------------------
verb_json($node, 'save');
copy($image, $other) or die;
my $index_offset = unpack('Q', read_bytes($other, INDEX_OFFSET, 8));
my ($offset, undef, $n_pages) = unpack('Q Q L', read_bytes($other, $index_offset + ENTRY_SIZE, 24));
for my $case (
	[ 'a page', $offset + 40000, $n_pages ],
	[ 'a descriptor', $offset + 64, $n_pages ],
	[ 'header', 70 ],
	[ 'superblock', HEADER + 100 ],
	[ 'index', $index_offset + 33 ])
{
	my ($name, $at, $lost) = @$case;

	copy($other, $image) or die;
	chmod 0600, $image;
	write_bytes($image, $at, chr(ord(read_bytes($image, $at, 1)) ^ 4));
	unlink $pool;
	if (defined $lost)
	{
		$result = verb_json($node, 'load', '--keep');
		is($result->{rc}, 0, "$name: loaded");
		is($result->{damaged_pages}, $lost, "$name: pages lost");
		like($result->{stderr}, qr/warning: chunk 1 of image "\Q$image\E" has a wrong checksum, which costs $lost pages/, "$name: named");
		ok(-e $image, "$name: kept with --keep");
		is(verify_json($node, '--pages')->{pages}{kept}, $valid - $lost, "$name: the rest is kept");
	}
	else
	{
		$result = verb_json($node, 'load');
		is($result->{rc}, 1, "$name damaged: an error");
		like($result->{stderr}, qr/the header, the superblock or the index of image "\Q$image\E" is damaged/, "$name damaged: says so");
		ok(!-e $pool, "$name damaged: no pool was made");
	}
}
for my $size (0, 100, CHUNKS, $index_offset - 4096, (-s $other) - 4096)
{
	copy($other, $image) or die;
	chmod 0600, $image;
	truncate $image, $size or die;
	unlink $pool;
	is(verb_json($node, 'load')->{rc}, 1, "cut off at $size: an error");
	ok(!-e $pool, "cut off at $size: no pool was made");
}
# chunks that were exchanged
copy($other, $image) or die;
chmod 0600, $image;
{
	my ($a, $b) = map { read_bytes($image, $index_offset + ENTRY_SIZE * $_, 24) } 0, 1;
	my ($offset_a, $offset_b) = map { unpack('Q', $_) } $a, $b;
	my ($bytes_a, $bytes_b) = map { read_bytes($image, $_, 65536) } $offset_a, $offset_b;
	write_bytes($image, $offset_a, $bytes_b);
	write_bytes($image, $offset_b, $bytes_a);
}
$result = verb_json($node, 'load');
is($result->{rc}, 0, 'exchanged chunks: loaded');
is($result->{damaged_chunks}, 2, 'exchanged chunks: both are damaged');

# and the whole image does for the pool that was left
copy($other, $image) or die;
chmod 0600, $image;
unlink $pool;
is(verb_json($node, 'load')->{rc}, 0, 'intact again: loaded');
starts_warm('intact again');

# ---------------------------------------------------------------------------
# Killed.
# ---------------------------------------------------------------------------
SKIP:
{
	skip 'pg_pcache cannot be killed at chosen steps in this build', 1 if !can_be_killed();

	for my $step (qw(save-opened save-begun save-chunk save-chunk:3 save-written save-synced save-renamed))
	{
		unlink $image;
		{
			local $ENV{PG_PCACHE_KILL_AT} = $step;
			is((pcache($node, 'save'))[0], -9, "$step: killed");
		}
		is(!!-e $image, $step eq 'save-renamed', "$step: an image, whole or not at all");
		is(verify_json($node)->{rc}, 0, "$step: the pool is as it was");
		is(verb_json($node, 'save')->{rc}, 0, "$step: saved");
		ok(!-e "$image.tmp", "$step: nothing is left over");
	}
	copy($image, $other) or die;
	for my $step (qw(load-created load-marked load-chunk load-chunk:3 load-filled load-named load-done load-removed))
	{
		copy($other, $image) or die;
		chmod 0600, $image;
		unlink $pool;
		{
			local $ENV{PG_PCACHE_KILL_AT} = $step;
			is((pcache($node, 'load'))[0], -9, "$step: killed");
		}
		my $whole = $step =~ /named|done|removed/;
		is(!!-e $pool, $whole, "$step: a missing pool has its name when it is complete");
		is(!!-e $image, $step ne 'load-removed', "$step: the image");
		is(verify_json($node)->{rc}, $whole ? 0 : 2, "$step: warm or cold");
		if (!$whole)
		{
			is(verb_json($node, 'load')->{rc}, 0, "$step: loaded");
		}
		starts_warm($step) if $step eq 'load-chunk:3' || $step eq 'load-done';
		if ($step eq 'load-chunk:3' || $step eq 'load-done')
		{
			verb_json($node, 'save');
			copy($image, $other) or die;
		}
	}

	# a server that starts on what a killed load has left of a pool that was there,
	# and was of no use
	patch_superblock($pool, state => STATE_EMPTY);
	copy($other, $image) or die;
	chmod 0600, $image;
	{
		local $ENV{PG_PCACHE_KILL_AT} = 'load-chunk:2';
		is((pcache($node, 'load'))[0], -9, 'left behind: killed');
	}
	starts_cold('left behind', qr/the pool is empty/);

	# the same without room for two of them
	is(verb_json($node, 'save')->{rc}, 0, 'no room for both: saved');
	copy($image, $other) or die;
	patch_superblock($pool, state => STATE_EMPTY);
	{
		local $ENV{PG_PCACHE_NO_ROOM_FOR_BOTH} = 1;
		local $ENV{PG_PCACHE_KILL_AT} = 'old-pool-shed';
		is(verb_json($node, 'load', '--dry-run')->{rc}, 0, 'no room for both: dry run');
		is((pcache($node, 'load'))[0], -9, 'no room for both: killed');
		is(-s $pool, 2 << 20, 'no room for both: the old pool gives its room back first');
	}
	is(verb_json($node, 'load')->{rc}, 0, 'no room for both: loaded');
	starts_warm('no room for both');
}

# ---------------------------------------------------------------------------
# What is in the way of a save.
# ---------------------------------------------------------------------------
is(verb_json($node, 'save', '--to', $node->data_dir . '/image')->{rc}, 1, 'inside the data directory: refused');
ok(!-e $node->data_dir . '/image', 'inside the data directory: nothing is left');
for my $size (0, 100, 16384)
{
	open my $f, '>:raw', "$image.tmp" or die;
	print $f "\0" x $size;
	close $f or die;
	is(verb_json($node, 'save')->{rc}, 0, "$size bytes of zeros under the temporary name: saved");
}
append_to_file("$image.tmp", 'somebody else wrote that');
is(verb_json($node, 'save')->{rc}, 1, 'a foreign file under the temporary name: refused');
unlink "$image.tmp";
$node->start;
$node->stop;
SKIP:
{
	skip 'pg_pcache cannot be killed at chosen steps in this build', 5 if !can_be_killed();

	# nobody loads it, and it may take the room that the next one needs
	ok(-e $image, 'an image of an earlier stop');
	{
		local $ENV{PG_PCACHE_KILL_AT} = 'save-opened';
		is((pcache($node, 'save'))[0], -9, 'an image of an earlier stop: the next save is killed when it begins');
	}
	ok(!-e $image, 'an image of an earlier stop: removed before the next one is there');
	is(verb_json($node, 'save')->{rc}, 0, 'an image of this stop: saved');
	{
		local $ENV{PG_PCACHE_KILL_AT} = 'save-opened';
		pcache($node, 'save');
	}
	ok(-e $image, 'an image of this stop stays until there is another one');
}

# ---------------------------------------------------------------------------
# A server that is started while a load creates the pool waits for it.
# ---------------------------------------------------------------------------
for my $end (qw(stuck finished killed))
{
	my $name = "the pool is being created, $end";
	my $from = log_offset($node);
	my $outcome;

	rename $pool, "$pool.tmp" or die "$pool: $!";
	open my $creator, '<', "$pool.tmp" or die "$pool.tmp: $!";
	flock $creator, LOCK_EX or die "$pool.tmp: $!";
	if ($end eq 'stuck')
	{
		$node->append_conf('postgresql.conf', 'pcache.required = on');
		like(start_and_fail($node, $name), qr/FATAL:  persistent cache pool "\Q$pool\E" is being created by another process/,
			"$name: the server gives up, and says why");
		$result = verify_json($node);
		is($result->{rc}, 1, "$name: verify cannot tell");
		like($result->{stderr}, qr/is being created by another process/, "$name: verify says why");
		ok(-e "$pool.tmp" && !-e $pool, "$name: nothing was changed");
		rename "$pool.tmp", $pool or die "$pool.tmp: $!";
		$node->adjust_conf('postgresql.conf', 'pcache.required', undef);
		next;
	}

	start_nowait($node);
	sleep 1;
	unlike(slurp_file($node->logfile, $from), qr/FATAL|persistent cache:/, "$name: the server waits");
	rename "$pool.tmp", $pool or die "$pool.tmp: $!" if $end eq 'finished';
	close $creator;
	wait_until_back($node);
	$outcome = start_outcome($node, $from);
	if ($end eq 'finished')
	{
		is($outcome->{start}, 'warm', "$name: warm");
		is($outcome->{kept}, $outcome->{saved}, "$name: all of it is kept");
	}
	else
	{
		is($outcome->{start}, 'cold', "$name: cold");
		like($outcome->{reason}, $CREATED, "$name: the server creates one");
	}
	ok(-e $pool && !-e "$pool.tmp", "$name: the pool has its name");
	is_deeply(checksums($node), $sums, "$name: contents");
	$valid = warm_up($node);
	$node->stop;
}

# ---------------------------------------------------------------------------
# Less room, and another place.
# ---------------------------------------------------------------------------
unlink $image;
is(verb_json($node, 'save')->{rc}, 0, 'fewer buffers: saved');
lose_pool();
$node->append_conf('postgresql.conf', "shared_buffers = 8MB\n");
is(verb_json($node, 'load')->{rc}, 0, 'fewer buffers: loaded');
{
	my $from = log_offset($node);
	$node->start;
	my $outcome = start_outcome($node, $from);
	is($outcome->{start}, 'warm', 'fewer buffers: warm');
	cmp_ok($outcome->{kept}, '<=', 1024, 'fewer buffers: what fits');
	is_deeply(checksums($node), $sums, 'fewer buffers: contents');
	$node->stop;
}

is(verb_json($node, 'save')->{rc}, 0, 'drop: saved');
$result = verb_json($node, 'drop');
is($result->{rc}, 0, 'drop: exit status');
like($result->{stderr}, qr/image "\Q$image\E" is left/, 'drop: it tells of the image');
ok(-e $image, 'drop: the image stays');
done_testing();
