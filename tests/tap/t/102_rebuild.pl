
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache rebuild: bad blocks; killed at every step, after which neither a start nor another
# rebuild believes what was half done.  What else is damaged the next start mends.

use strict;
use warnings FATAL => 'all';

use Fcntl qw(:flock);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(lstat);

my $node = new_node('main', init_options => [ '--size' => '64MB' ], shared_buffers => '32MB',
	init => { extra => [ '--wal-segsize' => 1 ] },
	conf => "max_wal_size = 32MB\nmin_wal_size = 2MB");
my $data = $node->data_dir;
my $pool = pool_file($node);
my ($rc, $out, $err, $result, $verdict, $offset, $outcome, $kept, @slots);

sub refused
{
	my ($name, $message, @args) = @_;
	my ($rc, $out, $err) = pcache($node, 'rebuild', @args);

	is($rc, 1, "$name: exit status");
	is($out, '', "$name: nothing on stdout");
	like($err, qr/^pg_pcache: error: (?:.* )?$message/m, "$name: message");
	return;
}

# Pool and data directory, which go together, to be put back.
sub save_all
{
	my $copy = PostgreSQL::Test::Utils::tempdir();

	system_or_bail('cp', '-a', $data, "$copy/data");
	return { pool => slurp_file($pool), data => "$copy/data" };
}

sub put_all_back
{
	my ($saved) = @_;

	put_back($node, $saved->{data});
	open my $fh, '>:raw', $pool or die $!;
	print $fh $saved->{pool};
	close $fh or die $!;
	chmod 0600, $pool;
	return;
}

my $expected;

# A start that keeps that many pages, with the right contents; then a clean
# stop.
sub starts
{
	my ($name, $start, $kept) = @_;

	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, $start, "$name: $start start") or diag($outcome->{reason} // '');
	is($outcome->{kept}, $kept, "$name: pages kept") if defined $kept;
	is(checksums($node), $expected, "$name: contents are right");
	pages_equal_disk($node, $name);
	$node->stop;
	return;
}

# ---------------------------------------------------------------------------
# Options.
# ---------------------------------------------------------------------------
for my $case (
	[ '--force', qr/option --force can only be used with "drop", "init" or "restart"\n/, '--force' ],
	[ '--directory', qr/option --directory can only be used with "drop", "init", "status" or "verify"\n/, '--directory' => '/tmp' ],
	[ '--size', qr/option --size can only be used with "init"\n/, '--size' => '1MB' ],
	[ '--pages', qr/option --pages can only be used with "verify"\n/, '--pages' ])
{
	my ($name, $message, @args) = @$case;

	refused($name, $message, @args);
}
($rc, $out, $err) = pcache($node, 'verify', '-j2');
is($rc, 1, 'verify -j2: exit status');
like($err, qr/option --jobs can only be used with "load" or "save"\n/, 'verify -j2: message');

# ---------------------------------------------------------------------------
# A live server, a locked pool, somebody else's pool, no pool.
# ---------------------------------------------------------------------------
$node->start;
load_data($node);
$expected = checksums($node);
refused('live server', qr/cluster must be shut down\n.*detail: A server with PID \d+ is running/);
warm_up($node);
$node->stop;
$kept = verify_json($node)->{pages}{kept};
open my $fh, '<', $pool or die $!;
flock $fh, LOCK_SH | LOCK_NB or die $!;
refused('locked', qr/persistent cache pool ".*" is locked by another process\n/);
close $fh;
my $saved = save_all();

patch_superblock($pool, system_identifier => sub { $_[0] + 1 });
refused('of another cluster', qr/persistent cache pool ".*" cannot be repaired\n.*detail: It belongs to another cluster, with system identifier \d+; this one has \d+\.\n.*hint: If no other cluster uses the pool, run "pg_pcache init --force" to have a new, empty one\.\n/);
put_all_back($saved);
rename $pool, "$pool.away";
refused('no pool', qr/could not open persistent cache pool ".*": No such file or directory\n.*hint: .*run "pg_pcache init" to create the pool\.\n/);
rename "$pool.away", $pool;

# ---------------------------------------------------------------------------
# Nothing to do.
# ---------------------------------------------------------------------------
$result = verb_json($node, 'rebuild');
is($result->{rc}, 0, 'sound pool: exit status');
is($result->{pages_kept}, $kept, 'sound pool: all pages are kept');
is($result->{pages_lost}, 0, 'sound pool: no page is lost');
ok(slurp_file($pool) eq $saved->{pool}, 'sound pool: nothing was changed');
($rc, $out, $err) = pcache($node, 'rebuild', '--dry-run');
is($rc, 0, '--dry-run: exit status');
like($out, qr/^Dry run: nothing was changed\.  This would be done:\n\npool: +\Q$pool\E\nbad blocks: +0 bytes in 0 ranges\nlost: +0 pages\n\z/,
	'--dry-run: output');

# A pool that is sound, and that the server cannot use: it starts without it, or not at all.
$node->adjust_conf('postgresql.conf', 'shared_buffers', '4TB');
for my $required (0, 1)
{
	my $name = 'no room for shared_buffers' . ($required ? ', required' : '');

	$node->append_conf('postgresql.conf', 'pcache.required = on') if $required;
	$result = verb_json($node, 'rebuild');
	is($result->{rc}, $required ? 1 : 2, "$name: exit status");
	is($result->{next_start}, $required ? 'none' : 'cold', "$name: the next start");
	is($result->{reason}, $required ? 'refused' : 'unavailable', "$name: and why");
	is($result->{pages_kept}, $kept, "$name: the pages are there");
	is(verify_json($node)->{rc}, $result->{rc}, "$name: verify agrees");
}
like((pcache($node, 'rebuild'))[1], qr/^next start: NONE: .*\nhint: There is no room/m, 'no room for shared_buffers, required: as text');
$node->adjust_conf('postgresql.conf', 'pcache.required', undef);
$node->adjust_conf('postgresql.conf', 'shared_buffers', '32MB');

# ---------------------------------------------------------------------------
# Damage that a start mends.
# ---------------------------------------------------------------------------
for my $case ([ 'superblock', 0 ], [ 'copy', COPY_OFFSET ])
{
	my ($name, $at) = @$case;

	put_all_back($saved);
	damage_superblock($pool, 'crc', $at);
	is(verb_json($node, 'rebuild')->{rc}, 0, "damaged $name: exit status");
	ok(!status_json($node)->{ $at == 0 ? 'superblock_intact' : 'superblock_copy_intact' }, "damaged $name: still damaged");
	starts("damaged $name", 'warm', $kept);
	my $status = status_json($node);
	ok($status->{superblock_intact} && $status->{superblock_copy_intact}, "damaged $name: the start mends it");
}
put_all_back($saved);
damage_superblock($pool, 'crc', 0, COPY_OFFSET);
refused('both superblocks damaged', qr/persistent cache pool ".*" cannot be repaired\n.*detail: Its superblock is damaged, so the cluster it belongs to is not known\.\n/);
starts('both superblocks damaged', 'cold');
put_all_back($saved);
patch_superblock($pool, format_version => 7);
refused('another format', qr/cannot be repaired\n.*detail: .*format version 7/);
starts('another format', 'cold');
put_all_back($saved);
truncate $pool, DESCRIPTORS_OFFSET + DESCRIPTOR_SIZE;
refused('cut off', qr/cannot be repaired\n.*detail: the pool file has \d+ bytes, which is too small for \d+ blocks\n/);
starts('cut off: there is room for shared_buffers again', 'cold');
put_all_back($saved);
@slots = (sealed_slots($pool))[ 10 .. 16 ];
write_descriptor($pool, $slots[0], crc => 1);
write_descriptor($pool, $slots[1], slot => 1);
write_descriptor($pool, $slots[2], fork_number => 17);
my $twin = read_descriptor($pool, $slots[3]);
write_descriptor($pool, $slots[4], map { $_ => $twin->{$_} } qw(spc_oid db_oid rel_number fork_number block_number));
is(verb_json($node, 'rebuild')->{pages_kept}, $kept - 4, 'damaged descriptors: these are lost');
starts('damaged descriptors', 'warm', $kept - 4);
$verdict = verify_json($node);
is($verdict->{pages}{duplicate} + $verdict->{pages}{damaged_descriptor} + $verdict->{pages}{invalid_tag}, 0,
	'damaged descriptors: the start mends them');

# The configuration tells where the pool is.
put_all_back($saved);
append_to_file("$data/postgresql.auto.conf", "no_such_setting = 1\n");
refused('unreadable configuration', qr/could not find out where the pool is: the server's configuration could not be read\n/);

# A pool on tmpfs that is lost after shared_buffers was raised.
put_all_back($saved);
unlink $pool;
$node->append_conf('postgresql.conf', 'shared_buffers = 96MB');
starts('lost, and shared_buffers raised', 'cold');
is(status_json($node)->{capacity}, 12288, 'lost, and shared_buffers raised: there is room');
$node->append_conf('postgresql.conf', 'shared_buffers = 32MB');
put_all_back($saved);

# ---------------------------------------------------------------------------
# Bad blocks, and kills.
# ---------------------------------------------------------------------------
if (!can_be_killed())
{
	note('pg_pcache was built without injection points: no bad blocks, and no kills');
	done_testing();
	exit;
}

my $blocks_offset = read_superblock($pool)->{blocks_offset};
my @sealed = sealed_slots($pool);
my %is_sealed = map { $_ => 1 } @sealed;
my ($page_slot, $next_slot) = @sealed[ 20, 21 ];
my ($group) = grep { $_ % 8 == 0 && $_ > 200 } @sealed;
# in the same 4 kB as the descriptor of $page_slot, but in another sector
my $near = $page_slot - $page_slot % 64 + (int($page_slot % 64 / 8) + 1) % 8 * 8;
my $near_lost = grep { $is_sealed{$_} } $near .. $near + 7;
my $descs_lost = grep { $is_sealed{$_} } $group .. $group + 7;

for my $case (
	[ 'in a page', [ [ $blocks_offset + $page_slot * BLCKSZ + 512, 512 ] ], 1 ],
	[ 'in two pages', [ [ $blocks_offset + $page_slot * BLCKSZ, 1 ], [ $blocks_offset + $next_slot * BLCKSZ + 8191, 1 ] ], 2 ],
	[ 'in descriptors', [ [ DESCRIPTORS_OFFSET + $group * DESCRIPTOR_SIZE, 512 ] ], $descs_lost ],
	[ 'in a page, and near its descriptor', [ [ DESCRIPTORS_OFFSET + $near * DESCRIPTOR_SIZE, 512 ],
		[ $blocks_offset + $page_slot * BLCKSZ, 512 ] ], 1 + $near_lost ],
	[ 'in the superblock', [ [ 0, 512 ] ], 0 ],
	[ 'in its copy', [ [ COPY_OFFSET, 512 ] ], 0 ],
	[ 'beyond the slots in use', [ [ $blocks_offset + 5000 * BLCKSZ, 512 ] ], 0 ])
{
	my ($name, $ranges, $lost) = @$case;
	my $bytes = 0;

	$name = "bad blocks $name";
	put_all_back($saved);
	# what is cleared reads as zeros
	for (@$ranges)
	{
		write_bytes($pool, $_->[0], 'b' x $_->[1]) if $_->[0] >= $blocks_offset;
		$bytes += $_->[1];
	}
	local $ENV{PG_PCACHE_BAD_BLOCKS} = join ',', map { "$_->[0]:$_->[1]" } @$ranges;
	$result = verb_json($node, 'rebuild', '--dry-run');
	is($result->{rc}, 0, "$name, dry run: exit status");
	is($result->{bad_bytes}, $bytes, "$name, dry run: bad bytes");
	is($result->{pages_lost}, $lost, "$name, dry run: lost pages");
	$result = verb_json($node, 'rebuild');
	# to the injection, what has been stored to again is bad again
	is($result->{rc}, $ranges->[0][0] < $blocks_offset ? 2 : 0, "$name: exit status") or diag($result->{stderr});
	is($result->{still_bad_bytes}, 0, "$name: cleared");
	is($result->{pages_lost}, $lost, "$name: lost pages");
	is($result->{pages_kept}, $kept - $lost, "$name: the others are kept");
	my $status = status_json($node);
	ok($status->{superblock_intact} && $status->{superblock_copy_intact}, "$name: superblocks are intact");
	cmp_ok((stat $pool)[12] * 512, '>=', -s _, "$name: the file is not sparse");
	delete $ENV{PG_PCACHE_BAD_BLOCKS};
	$verdict = verify_json($node, '--pages');
	is($verdict->{compared}{equal} + $verdict->{compared}{hint_bits}, $kept - $lost, "$name: the others are as they were");
	is($verdict->{pages}{damaged_descriptor}, 0, "$name: no descriptor is damaged");
	starts($name, 'warm', $kept - $lost);
}
# A memory error that a server process died of: the pool remembers it.
put_all_back($saved);
my $entry = pack 'QL', $blocks_offset + $page_slot * BLCKSZ, BLCKSZ;
my $other_entry = pack 'QL', $blocks_offset + 5000 * BLCKSZ, BLCKSZ;
write_bytes($pool, 12288, $entry . pack('L', crc32c($entry)) . $other_entry . pack('L', crc32c($other_entry)));
is(verify_json($node)->{pages}{bad_block}, 1, 'memory error: a page is lost');
$result = verb_json($node, 'rebuild');
is($result->{rc}, 0, 'memory error: exit status');
is($result->{bad_bytes}, 2 * BLCKSZ, 'memory error: bad bytes');
is($result->{still_bad_bytes}, 0, 'memory error: cleared');
is(read_bytes($pool, 12288, 32), "\0" x 32, 'memory error: forgotten');
is(verify_json($node)->{pages}{bad_block}, 0, 'memory error: the slot is free');
$offset = log_offset($node);
starts('memory error', 'warm', $kept - 1);
unlike(slurp_file($node->logfile, $offset), qr/has bad blocks/, 'memory error: the server uses all slots again');

# A bad block in each sector with notes: what they said is not known any more, so it is the
# worst that they could have said.
for my $case ([ 'how a process died', 8192 + 192, 64, qr/may have overwritten cached pages before/ ],
	[ 'read errors, and others', 8192 + 512, 24, qr/^pages may have been read with "zero_damaged_pages" or / ])
{
	my ($name, $at, $length, $reason) = @$case;

	$name = "bad block in notes, $name";
	put_all_back($saved);
	# what is cleared reads as zeros
	write_bytes($pool, $at, pack('Q', 1));
	{
		local $ENV{PG_PCACHE_BAD_BLOCKS} = ($at - $at % 512) . ':512';
		$result = verb_json($node, 'rebuild');
	}
	is($result->{rc}, 2, "$name: rebuild says that it will be cold") or diag($result->{stderr});
	is(read_bytes($pool, $at, $length), "\xff" x $length, "$name: all of them are set");
	$verdict = verify_json($node);
	is($verdict->{next_start}, 'cold', "$name: cold");
	like($verdict->{detail} // '', $reason, "$name: for the right reason");
	starts($name, 'cold');
}

{
	local $ENV{PG_PCACHE_BAD_BLOCKS} = '0:4096,' . COPY_OFFSET . ':512';
	refused('bad blocks in both superblocks', qr/both superblocks of persistent cache pool ".*" are on bad blocks\n.*hint: To have a new, empty pool/);
}

# One that stays bad.
put_all_back($saved);
{
	local $ENV{PG_PCACHE_BAD_BLOCKS} = ($blocks_offset + $page_slot * BLCKSZ) . ':512!';
	$result = verb_json($node, 'rebuild');
	is($result->{rc}, 0, 'stuck: exit status');
	is($result->{still_bad_bytes}, 512, 'stuck: counted');
	like($result->{stderr}, qr/warning: 512 bytes of persistent cache pool ".*" are still bad\n.*detail: The server does not use the slots that they are in\.\n/,
		'stuck: message');
	is($result->{pages_kept}, $kept - 1, 'stuck: the others are kept');
	$ENV{PG_PCACHE_BAD_BLOCKS} = (DESCRIPTORS_OFFSET + $group * DESCRIPTOR_SIZE) . ':512!';
	refused('stuck, in descriptors', qr/could not clear bad blocks at offset \d+ of persistent cache pool ".*"\n.*hint: Create a pool on other media/);
}

# Killed at each step.  What an interrupted one left is rebuilt by another one.
put_all_back($saved);

sub warm_again
{
	$node->start;
	warm_up($node);
	$node->stop;
	is(verb_json($node, 'rebuild')->{rc}, 0, 'warm again');
	return;
}

my $bad = "0:512," . ($blocks_offset + $page_slot * BLCKSZ) . ':512,'
  . (DESCRIPTORS_OFFSET + $near * DESCRIPTOR_SIZE) . ':512,' . (DESCRIPTORS_OFFSET + $group * DESCRIPTOR_SIZE) . ':512';
my (@steps, %count);

warm_again();
{
	local $ENV{PG_PCACHE_TRACE_STEPS} = 1;
	local $ENV{PG_PCACHE_BAD_BLOCKS} = $bad;
	($rc, $out, $err) = pcache($node, 'rebuild');
	is($rc, 2, 'exit status');
	@steps = map { $count{$_}++ == 0 ? $_ : "$_:$count{$_}" } $err =~ /^step: (\S+)$/mg;
}
cmp_ok(scalar @steps, '>', 10, 'there are steps to be killed at');
for my $step (@steps)
{
	my $name = "killed at $step";
	my $killed;

	warm_again();
	{
		local $ENV{PG_PCACHE_KILL_AT} = $step;
		local $ENV{PG_PCACHE_BAD_BLOCKS} = $bad;
		($killed) = pcache($node, 'rebuild');
	}
	is($killed, -9, "$name: killed");
	$verdict = verify_json($node, '--pages');
	is($verdict->{rc}, $step eq 'unmarked' ? 0 : 2, "$name: pg_pcache verify says cold until all is done")
	  or diag($verdict->{stderr});
	starts($name, $verdict->{next_start});
}

done_testing();
