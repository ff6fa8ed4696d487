
# Copyright (c) 2026, the persistent-cache developers

# Bad blocks below the pool, as an injection point reports them: they cost the
# pages that lie on them, their slots are never touched again, and the rest is
# kept.  And a pool file that loses its blocks under a running server: SIGBUS,
# then a cold start.

use strict;
use warnings FATAL => 'all';

use List::Util qw(shuffle);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_inject_module();

seed_random();

my $node = new_node('main', conf => "shared_preload_libraries = 'pcache_inject'");
my $pool = pool_file($node);
my ($offset, $expected, $outcome, $all, $valid, @slots);

$node->start;
load_data($node);
# more than fits in shared buffers
$node->safe_psql('postgres', q{
CREATE TABLE big (id int, filler text);
INSERT INTO big SELECT i, repeat('x', 1500) FROM generate_series(1, 25000) i});
$expected = checksums($node);

my ($heap, $db) = split /\|/, $node->safe_psql('postgres', q{
SELECT pg_relation_filenode('t_heap'), oid FROM pg_database WHERE datname = 'postgres'});
my $is_heap = sub {
	$_[0]->{rel_number} == $heap && $_[0]->{db_oid} == $db && $_[0]->{fork_number} == 0;
};

# What comes out of the clean pool of a server that is down is lost with these
# slots.  Fills them with a pattern that nobody may write to.
my $blocks_offset;
my $pattern = pack 'a8192', 'do not touch me ' x 512;

sub block_offset
{
	return $blocks_offset + $_[0] * BLCKSZ;
}

sub fill_blocks
{
	write_bytes($pool, block_offset($_), $pattern) for @_;
	return;
}

sub blocks_untouched
{
	my ($name, @of) = @_;
	my @changed = grep { read_bytes($pool, block_offset($_), BLCKSZ) ne $pattern } @of;

	is("@changed", '', "$name: nobody wrote to the slots on bad blocks");
	return;
}

sub setting
{
	my ($name, $value) = @_;

	$node->adjust_conf('postgresql.conf', $name, undef);
	$node->append_conf('postgresql.conf', "$name = '$value'") if defined $value;
	return;
}

sub inject
{
	my (%what) = @_;

	for my $name (qw(media bad_blocks))
	{
		setting("pcache_inject.$name", $what{$name});
	}
	return;
}

# Nobody has put a page into these slots.  (That they are pinned does not show
# as long as they are empty.)
sub are_retired
{
	my ($name, @of) = @_;
	my $ids = join ', ', map { $_ + 1 } @of;

	is( $node->safe_psql('postgres', qq{
SELECT count(*) FROM pg_buffercache
WHERE bufferid IN ($ids) AND relfilenode IS NULL}),
		scalar @of, "$name: the slots are not in use");
	is( $node->safe_psql('postgres',
			'SELECT count(*) FROM pg_buffercache WHERE pinning_backends > 0'),
		0, "$name: no page stays pinned");
	return;
}

# Use all buffers several times over, for reading and for writing.
sub use_heavily
{
	$node->safe_psql('postgres', q{
SET synchronize_seqscans = off;
SELECT pg_prewarm('big');
UPDATE big SET id = -id WHERE id % 7 = 0;
SELECT pg_prewarm('big');
CREATE TABLE scratch AS SELECT * FROM t_heap;
CREATE INDEX ON scratch (id);
SELECT pg_prewarm('scratch');
DROP TABLE scratch;
VACUUM big;
CHECKPOINT;
SELECT pg_prewarm('big')});
	return;
}

# ---------------------------------------------------------------------------
# Bad blocks in pages.
# ---------------------------------------------------------------------------
$node->stop;
$blocks_offset = read_superblock($pool)->{blocks_offset};
$node->start;

for my $case (
	[ 'a sector in one page', 1, sub { sprintf '%d:512', block_offset($_[0]) + 2048 } ],
	[ 'the first and the last byte of pages', 2, sub {
		sprintf '%d:1,%d:1', block_offset($_[0]), block_offset($_[1]) + BLCKSZ - 1;
	} ],
	[ 'one whole page', 1, sub { sprintf '%d:%d', block_offset($_[0]), BLCKSZ } ],
	[ 'sectors in ten pages, unordered and overlapping', 10, sub {
		join ',', map { sprintf '%d:512,%d:512', $_ + 1024, $_ + 768 }
		  shuffle map { block_offset($_) } @_;
	} ])
{
	my ($name, $n, $ranges) = @$case;

	warm_up($node);
	$node->stop;
	$all = verify_json($node)->{pages}{kept};
	@slots = (shuffle sealed_slots($pool, $is_heap))[0 .. $n - 1];
	inject(bad_blocks => $ranges->(@slots));
	fill_blocks(@slots);

	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "$name: warm start");
	is_deeply($outcome->{dropped}, { 'bad block' => $n }, "$name: exactly these were dropped");
	is($outcome->{kept}, $all - $n, "$name: the others were kept");
	like($outcome->{log},
		qr/WARNING:  persistent cache pool "[^"]*\/pool" has bad blocks\n.*DETAIL:  $n (?:range; the pages in it|ranges; the pages in them) are dropped, and their slots not used\./,
		"$name: a WARNING tells");
	are_retired($name, @slots);
	is(checksums($node), $expected, "$name: contents are right");

	use_heavily();
	are_retired("$name, heavy use", @slots);
	is(checksums($node), $expected, "$name, heavy use: contents are right");
	blocks_untouched("$name, heavy use", @slots);

	# Once more, with the same bad blocks: nothing is lost by them now.
	$valid = warm_up($node);
	$offset = log_offset($node);
	$node->restart;
	$outcome = is_warm($node, $offset, $valid, "$name, restarted");
	is_deeply($outcome->{dropped}, {}, "$name, restarted: nothing was dropped");
	are_retired("$name, restarted", @slots);
	is(checksums($node), $expected, "$name, restarted: contents are right");
	pages_equal_disk($node, "$name, restarted");

	# A crash restart retires them again.
	$node->stop('immediate');
	blocks_untouched("$name, restarted", @slots);
	$offset = log_offset($node);
	$node->start;
	is(start_outcome($node, $offset)->{start}, 'cold', "$name, crashed: cold start");
	are_retired("$name, crashed", @slots);
	$expected =~ s/^t_unlogged.*$/t_unlogged|0|0/m;
	is(checksums($node), $expected, "$name, crashed: contents are right");
	use_heavily();
	blocks_untouched("$name, crashed", @slots);

	# Mended, by whatever means: the slots are used again.
	warm_up($node);
	$node->stop;
	inject();
	$node->start;
	use_heavily();
	is( $node->safe_psql('postgres', 'SELECT count(*) FROM pg_buffercache WHERE relfilenode IS NULL'),
		0, "$name, mended: all slots are in use");
}

# A range that spans neighbours, up to the end of the pool.
$valid = warm_up($node);
$node->stop;
my $nslots = read_superblock($pool)->{slots_used};
my %sealed = map { $_ => 1 } sealed_slots($pool);
@slots = ($nslots - 64 .. $nslots - 1);
my $lost = grep { $sealed{$_} } @slots;
fill_blocks(@slots);
inject(bad_blocks => sprintf('%d:%d', block_offset($slots[0]) + BLCKSZ - 64, 1 << 40));
$offset = log_offset($node);
$node->start;
$outcome = start_outcome($node, $offset);
is($outcome->{start}, 'warm', 'the last 64: warm start');
is($outcome->{dropped}{'bad block'} // 0, $lost, 'the last 64: exactly these were dropped');
is($outcome->{kept}, keys(%sealed) - $lost, 'the last 64: the others were kept');
are_retired('the last 64', @slots);
use_heavily();
is(checksums($node), $expected, 'the last 64: contents are right');
blocks_untouched('the last 64', @slots);

# Not below the slots that are in use, or before the descriptors.
$node->stop;
inject(bad_blocks => sprintf('%d:512,%d:%d', 12288, block_offset($nslots), 1 << 40));
$node->start;
$valid = warm_up($node);
$offset = log_offset($node);
$node->restart;
$outcome = is_warm($node, $offset, $valid, 'elsewhere');
is_deeply($outcome->{dropped}, {}, 'elsewhere: nothing was dropped');
like($outcome->{log}, qr/WARNING:  persistent cache pool .* has bad blocks/,
	'elsewhere: a WARNING tells');
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_buffercache WHERE relfilenode IS NULL'),
	0, 'elsewhere: all slots are in use');

# ---------------------------------------------------------------------------
# Bad blocks in descriptors: a sector of them holds those of eight slots.
# ---------------------------------------------------------------------------
inject();
$node->restart;
warm_up($node);
$node->stop;
$all = verify_json($node)->{pages}{kept};
%sealed = map { $_ => 1 } sealed_slots($pool);
my ($first) = grep { $_ % 8 == 0 } shuffle sealed_slots($pool, $is_heap);
@slots = ($first .. $first + 7);
$lost = grep { $sealed{$_} } @slots;
my $descriptors = read_bytes($pool, DESCRIPTORS_OFFSET + $first * DESCRIPTOR_SIZE, 512);
inject(bad_blocks => sprintf('%d:512', DESCRIPTORS_OFFSET + $first * DESCRIPTOR_SIZE));
fill_blocks(@slots);
$offset = log_offset($node);
$node->start;
$outcome = start_outcome($node, $offset);
is($outcome->{start}, 'warm', 'descriptors: warm start');
is($outcome->{kept}, $all - $lost, 'descriptors: the pages they describe were dropped, the others kept');
are_retired('descriptors', @slots);
is(checksums($node), $expected, 'descriptors: contents are right');
use_heavily();
is(checksums($node), $expected, 'descriptors, heavy use: contents are right');
blocks_untouched('descriptors, heavy use', @slots);
restart_warm($node, 'descriptors, restarted');
is(checksums($node), $expected, 'descriptors, restarted: contents are right');
$node->stop;
blocks_untouched('descriptors, restarted', @slots);
ok( read_bytes($pool, DESCRIPTORS_OFFSET + $first * DESCRIPTOR_SIZE, 512) eq $descriptors,
	'descriptors: nobody wrote to them');
inject();
$node->start;

# ---------------------------------------------------------------------------
# Blocks that go bad while the server runs: their pages are not saved.
# ---------------------------------------------------------------------------
$valid = warm_up($node);
@slots = map { $_ - 1 } split /\n/, $node->safe_psql('postgres', q{
SELECT bufferid FROM pg_buffercache WHERE relforknumber = 0 AND
  relfilenode = pg_relation_filenode('t_heap') ORDER BY relblocknumber LIMIT 5});
inject(bad_blocks => join(',', map { block_offset($_) . ':512' } @slots));
reload_until($node, 'pcache_inject.bad_blocks', '<>', '');
$offset = log_offset($node);
$node->stop;
like(slurp_file($node->logfile, $offset), qr/WARNING:  persistent cache pool .* has bad blocks/,
	'gone bad while running: a WARNING tells at the stop');
%sealed = map { $_ => 1 } sealed_slots($pool);
is(scalar(grep { $sealed{$_} } @slots), 0, 'gone bad while running: not saved');
fill_blocks(@slots);
$offset = log_offset($node);
$node->start;
$outcome = is_warm($node, $offset, $valid - @slots, 'gone bad while running');
# the pool remembers on which sector there were bad descriptors, above
is_deeply($outcome->{dropped}, { 'bad block' => 512 / DESCRIPTOR_SIZE },
	'gone bad while running: nothing more to drop');
are_retired('gone bad while running', @slots);
is(checksums($node), $expected, 'gone bad while running: contents are right');
use_heavily();
blocks_untouched('gone bad while running', @slots);
inject();
$node->restart;

# ---------------------------------------------------------------------------
# A bad superblock, or its copy: the other one serves, and nobody writes to it.
# Mode always, because there checkpoints store superblocks too.
# ---------------------------------------------------------------------------
$node->stop;
set_mode($node, 'always');
$node->start;
my @superblocks = ([ 'first superblock', 0 ], [ 'superblock copy', COPY_OFFSET ]);

for my $i (0, 1)
{
	my ($name, $at) = @{ $superblocks[$i] };
	my $other = $superblocks[ 1 - $i ][1];
	my $before;

	$valid = warm_up($node);
	$node->stop;
	inject(bad_blocks => $at + 1024 . ':1');
	$before = read_bytes($pool, $at, SUPERBLOCK_SIZE);
	$offset = log_offset($node);
	$node->start;
	is_warm($node, $offset, $valid, "bad $name");
	$node->safe_psql('postgres', 'CREATE TABLE more AS SELECT 1; CHECKPOINT; DROP TABLE more; CHECKPOINT');
	restart_warm($node, "bad $name, checkpoints and a restart");
	is(checksums($node), $expected, "bad $name: contents are right");
	$node->stop;
	ok(read_bytes($pool, $at, SUPERBLOCK_SIZE) eq $before, "bad $name: nobody wrote to it");
	ok(read_bytes($pool, $other, SUPERBLOCK_SIZE) ne $before, "bad $name: the other one was written");

	# Mended, without what it has missed.
	inject();
	$node->start;
	restart_warm($node, "$name, mended");

	# It goes bad while the server runs: not written from when that is known.
	inject(bad_blocks => "$at:512");
	reload_until($node, 'pcache_inject.bad_blocks', '<>', '');
	$valid = warm_up($node);
	$node->stop;
	isnt(read_superblock($pool, $at)->{state}, STATE_CLEAN, "$name gone bad while running: does not say that the pool is clean");
	is(read_superblock($pool, $other)->{state}, STATE_CLEAN, "$name gone bad while running: the other one does");
	$offset = log_offset($node);
	$node->start;
	is_warm($node, $offset, $valid, "$name gone bad while running");
	is(checksums($node), $expected, "$name gone bad while running: contents are right");
	$node->stop;
	inject();
	$node->start;
}

# Both: there is nothing to write to.
$node->stop;
inject(bad_blocks => '0:512,' . COPY_OFFSET . ':512');
start_fails($node, qr/FATAL:  persistent cache pool .* cannot be used: too many of its blocks are bad\n/,
	'both superblocks are bad');
inject();
set_mode($node, 'planned_restart');
$node->start;
restart_warm($node, 'both superblocks mended');

# ---------------------------------------------------------------------------
# Answers about the pool as a whole.
# ---------------------------------------------------------------------------
for my $case (
	[ 'unknown, to be used', { media => 'unknown' }, 'use' ],
	[ 'unknown, cold', { media => 'unknown' }, 'cold',
		qr/^bad blocks of the pool are not known: a test says so$/ ],
	[ 'clean', { media => 'clean' }, 'cold' ])
{
	my ($name, $what, $policy, $cold) = @$case;

	$valid = warm_up($node);
	$node->stop;
	inject(%$what);
	setting('persistent_cache_on_media_unknown', $policy);
	$offset = log_offset($node);
	$node->start;
	if (defined $cold)
	{
		is_cold($node, $offset, $cold, $name);
	}
	else
	{
		is_warm($node, $offset, $valid, $name);
	}
	is(checksums($node), $expected, "$name: contents are right");
	use_heavily();
	is(checksums($node), $expected, "$name, heavy use: contents are right");
	$node->stop;
	inject();
	setting('persistent_cache_on_media_unknown', undef);
	$node->start;
	is(checksums($node), $expected, "$name, known again: contents are right");
	restart_warm($node, "$name, known again and a clean stop");
}

# A server can't run without buffers: too many bad blocks to list, or nearly
# all of the pool.
for my $case (
	[ 'too many', { media => 'truncated', bad_blocks => block_offset(7) . ':512' } ],
	[ 'nearly all', { bad_blocks => block_offset(7) . ':' . ($nslots - 8) * BLCKSZ } ])
{
	my ($name, $what) = @$case;

	warm_up($node);
	$node->stop;
	inject(%$what);
	start_fails($node, qr/FATAL:  persistent cache pool .* cannot be used: too many of its blocks are bad\n.*HINT:  Create a pool on other media/,
		$name);
	inject();
	$node->start;
	is(checksums($node), $expected, "$name, mended: contents are right");
	restart_warm($node, "$name, mended and a clean stop");
}

# ---------------------------------------------------------------------------
# SIGBUS: the file is cut off under the running server.
# ---------------------------------------------------------------------------
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->restart;
$expected =~ s/^t_unlogged.*$/t_unlogged|0|0/m;
my $size = -s $pool;

for my $case ([ 'half of the blocks', sub { $blocks_offset + $nslots / 2 * BLCKSZ } ],
	[ 'all blocks', sub { $blocks_offset } ],
	[ 'blocks and descriptors', sub { DESCRIPTORS_OFFSET } ],
	[ 'everything', sub { 0 } ])
{
	my ($name, $length) = @$case;
	my $rc;

	warm_up($node);
	$node->safe_psql('postgres',
		"CHECKPOINT; INSERT INTO t_other SELECT i, '$name' FROM generate_series(1, 100) i");
	my $others = $node->safe_psql('postgres', 'SELECT count(*) FROM t_other');
	my $postmaster = slurp_file($node->data_dir . '/postmaster.pid') =~ s/\n.*//sr;

	$offset = log_offset($node);
	truncate $pool, $length->() or die "could not truncate $pool: $!";
	# until the server has noticed
	for (1 .. 5)
	{
		$rc = query_broken_server($node,
			q{SET enable_indexscan = off; SELECT count(filler) FROM t_heap; SELECT sum(length(doc)) FROM t_toast});
		last if $rc != 0;
	}
	isnt($rc, 0, "$name cut off: a session breaks");
	$node->wait_for_log(qr/was terminated by signal 7: Bus error/, $offset);
	wait_until_back($node);
	is(slurp_file($node->data_dir . '/postmaster.pid') =~ s/\n.*//sr,
		$postmaster, "$name cut off: the server comes back by itself");
	is_cold($node, $offset, $length->() == 0 ? qr/^magic number is wrong$/
		: $length->() >= $blocks_offset ? qr/^the server was not shut down cleanly/
		: qr/^the pool file has \d+ bytes, /,
		"$name cut off");
	is(-s $pool, $size, "$name cut off: the file has its size again");
	is(checksums($node), $expected, "$name cut off: contents are right");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t_other'),
		$others, "$name cut off: what was committed is there");
	use_heavily();
	is(checksums($node), $expected, "$name cut off, heavy use: contents are right");
	my $crashes = () = slurp_file($node->logfile, $offset) =~ /all server processes terminated; reinitializing/g;
	is($crashes, 1, "$name cut off: there was one crash");
	restart_warm($node, "$name cut off, then a clean stop");
	is(checksums($node), $expected, "$name cut off, then a clean stop: contents are right");
}

$node->stop;
done_testing();
