
# Copyright (c) 2026, the persistent-cache developers

# Damaged descriptors cost their own pages and no others, and each is counted
# under its reason, by the server and by pg_pcache verify.

use strict;
use warnings FATAL => 'all';

use List::Util qw(shuffle sum);
use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

seed_random();

my $node = new_node('main');
my $pool = pool_file($node);
my ($expected, $saved, @slots);

$node->start;
load_data($node);
$expected = checksums($node);

my ($heap, $db) = split /\|/, $node->safe_psql('postgres', q{
SELECT pg_relation_filenode('t_heap'), oid FROM pg_database WHERE datname = 'postgres'});
my $heap_blocks = $node->safe_psql('postgres',
	q{SELECT pg_relation_size('t_heap') / 8192});
my $is_heap = sub {
	$_[0]->{rel_number} == $heap && $_[0]->{db_oid} == $db && $_[0]->{fork_number} == 0;
};

# The descriptors say what the buffers hold.
warm_up($node);
my %buffers = map { my @f = split /\|/; $f[0] - 1 => "@f[1 .. 6]" } split /\n/,
  $node->safe_psql('postgres', q{
SELECT bufferid, reltablespace, reldatabase, relfilenode, relforknumber, relblocknumber, usagecount
FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('t_heap')});
$node->stop;
my $right = 0;
for my $slot (sealed_slots($pool, $is_heap))
{
	my $d = read_descriptor($pool, $slot);
	my $text = join ' ', @$d{qw(spc_oid db_oid rel_number fork_number block_number usage_count)};

	$right++ if ($buffers{$slot} // '') eq $text && $d->{slot} == $slot && $d->{version} == 1;
}
is($right, $heap_blocks, 'the descriptors of a table say what its buffers held');
$node->start;

my $lsn_after_end = ~0 >> 1;

# name, key in JSON, the server's word for it, number of pages that go, code
# that damages some of the slots it gets
my @cases = (
	[ 'a bit flipped in some', 'damaged_descriptor', 'damaged descriptor', 20, sub {
		flip($_, 8 + int(rand(56))) for @_[0 .. 19];
	} ],
	[ 'a bit flipped in each byte in turn', 'damaged_descriptor', 'damaged descriptor', 56, sub {
		flip($_[$_], 8 + $_) for 0 .. 55;
	} ],
	[ 'zeros', 'damaged_descriptor', 'damaged descriptor', 3, sub {
		write_bytes($pool, offset_of($_), "\0" x DESCRIPTOR_SIZE) for @_[0 .. 2];
	} ],
	[ 'slot of another', 'damaged_descriptor', 'damaged descriptor', 2, sub {
		write_descriptor($pool, $_[0], slot => $_[1]);
		write_descriptor($pool, $_[2], slot => 0xFFFFFFFF);
	} ],
	[ 'unknown version', 'damaged_descriptor', 'damaged descriptor', 2, sub {
		write_descriptor($pool, $_[0], version => 2);
		write_descriptor($pool, $_[1], version => 0);
	} ],
	[ 'fork that there is not', 'invalid_tag', 'invalid tag', 3, sub {
		write_descriptor($pool, $_[0], fork_number => 4);
		write_descriptor($pool, $_[1], fork_number => -1);
		write_descriptor($pool, $_[2], fork_number => 0x7FFFFFFF);
	} ],
	[ 'tags of nothing', 'invalid_tag', 'invalid tag', 5, sub {
		write_descriptor($pool, $_[0], rel_number => 0);
		write_descriptor($pool, $_[1], spc_oid => 0);
		write_descriptor($pool, $_[2], block_number => 0xFFFFFFFF);
		write_descriptor($pool, $_[3], db_oid => 0);
		write_descriptor($pool, $_[4], spc_oid => 1664);
	} ],
	[ 'beyond the end of the file', 'beyond_end_of_file', 'beyond end of file', 3, sub {
		write_descriptor($pool, $_[0], block_number => $heap_blocks);
		write_descriptor($pool, $_[1], block_number => $heap_blocks + 1);
		write_descriptor($pool, $_[2], block_number => 0xFFFFFFFE);
	} ],
	[ 'missing relation, database, tablespace, fork', 'no_such_relation', 'no such relation', 4, sub {
		write_descriptor($pool, $_[0], rel_number => 0x7FFFFFF0);
		write_descriptor($pool, $_[1], db_oid => 0x7FFFFFF0);
		write_descriptor($pool, $_[2], spc_oid => 0x7FFFFFF0);
		write_descriptor($pool, $_[3], fork_number => 3);
	} ],
	[ 'LSN too new', 'wal_not_durable', 'WAL not durable', 2, sub {
		my $end = read_superblock($pool)->{'saved.location'};
		write_descriptor($pool, $_[0], page_lsn => $end + 1);
		write_descriptor($pool, $_[1], page_lsn => $lsn_after_end);
		# the checkpoint itself is durable
		write_descriptor($pool, $_[2], page_lsn => $end);
	} ],
	[ 'the same page twice', 'duplicate', 'duplicate', 2, sub {
		duplicate($_[0], $_[1]);
	} ],
	[ 'the same page three times', 'duplicate', 'duplicate', 3, sub {
		duplicate($_[0], $_) for $_[1], $_[2];
	} ],
	[ 'two pages twice, one three times', 'duplicate', 'duplicate', 7, sub {
		duplicate($_[0], $_[1]);
		duplicate($_[2], $_[3]);
		duplicate($_[4], $_[5]);
		duplicate($_[4], $_[6]);
	} ]);

for my $case (@cases)
{
	my ($name, $key, $word, $n, $damage) = @$case;
	my ($verdict, $offset, $outcome, $all, %before);

	warm_up($node);
	$node->stop;
	$all = verify_json($node)->{pages}{kept};
	@slots = shuffle sealed_slots($pool, $is_heap);
	$damage->(@slots);

	$verdict = verify_json($node);
	is($verdict->{rc}, 0, "$name: pg_pcache verify says warm");
	is($verdict->{pages}{$key}, $n, "$name: pg_pcache verify counts them");
	is($verdict->{pages}{kept}, $all - $n, "$name: pg_pcache verify keeps the others");
	is($verdict->{saved_pages}, $all, "$name: pg_pcache verify knows how many were saved");

	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "$name: warm start");
	is_deeply($outcome->{dropped}, { $word => $n }, "$name: exactly these were dropped");
	is($outcome->{kept}, $all - $n, "$name: the others were kept");
	is(cached_blocks(), $heap_blocks - $n, "$name: that many blocks of the table are cached");
	is(checksums($node), $expected, "$name: contents are right");
	pages_equal_disk($node, $name);
}

# A descriptor that is not sealed is a page that is not there.
warm_up($node);
$node->stop;
my $all = verify_json($node)->{pages}{kept};
@slots = shuffle sealed_slots($pool, $is_heap);
for my $slot (@slots[0 .. 9])
{
	my $seq = read_descriptor($pool, $slot)->{seq};
	write_bytes($pool, offset_of($slot), pack 'Q', $seq + 1);
}
my $verdict = verify_json($node);
is($verdict->{pages}{kept}, $all - 10, 'not sealed: pg_pcache verify does not keep them');
my $offset = log_offset($node);
$node->start;
is(start_outcome($node, $offset)->{kept}, $all - 10, 'not sealed: dropped');
is(cached_blocks(), $heap_blocks - 10, 'not sealed: not cached');
is(checksums($node), $expected, 'not sealed: contents are right');

# All sorts at once, and then all of them: nothing is left, the server starts.
warm_up($node);
$node->stop;
$all = verify_json($node)->{pages}{kept};
@slots = shuffle sealed_slots($pool, $is_heap);
flip($slots[0], 12);
write_descriptor($pool, $slots[1], fork_number => 9);
write_descriptor($pool, $slots[2], block_number => $heap_blocks + 5);
write_descriptor($pool, $slots[3], rel_number => 0x7FFFFFF0);
write_descriptor($pool, $slots[4], page_lsn => $lsn_after_end);
duplicate($slots[5], $slots[6]);
$offset = log_offset($node);
$node->start;
my $outcome = start_outcome($node, $offset);
is_deeply(
	$outcome->{dropped},
	{
		'damaged descriptor' => 1,
		'invalid tag' => 1,
		'beyond end of file' => 1,
		'no such relation' => 1,
		'WAL not durable' => 1,
		'duplicate' => 2
	},
	'all sorts: each under its reason');
is($outcome->{kept}, $all - 7, 'all sorts: the others were kept');
is(checksums($node), $expected, 'all sorts: contents are right');

warm_up($node);
$node->stop;
@slots = sealed_slots($pool);
flip($_, 20) for @slots;
$verdict = verify_json($node);
is($verdict->{rc}, 2, 'all damaged: pg_pcache verify says cold');
is($verdict->{reason}, 'pages', 'all damaged: pg_pcache verify says why');
$offset = log_offset($node);
$node->start;
$outcome = start_outcome($node, $offset);
is($outcome->{kept}, 0, 'all damaged: none kept');
is(cached_table_pages($node), 0, 'all damaged: no page of the tables is cached');
is(checksums($node), $expected, 'all damaged: contents are right');
restart_warm($node, 'all damaged, then a clean stop');

# Random bytes over the whole array.
warm_up($node);
$node->stop;
write_bytes($pool, DESCRIPTORS_OFFSET, join '', map { chr int rand 256 } 1 .. 4096 * DESCRIPTOR_SIZE);
$offset = log_offset($node);
$node->start;
is(start_outcome($node, $offset)->{kept}, 0, 'random bytes: none kept');
is(checksums($node), $expected, 'random bytes: contents are right');
restart_warm($node, 'random bytes, then a clean stop');

# Usage counts come from the descriptors, and never exceed what there can be.
warm_up($node);
$node->stop;
@slots = sealed_slots($pool, $is_heap);
write_descriptor($pool, $slots[0], usage_count => 3);
write_descriptor($pool, $slots[1], usage_count => 255);
write_descriptor($pool, $slots[2], usage_count => 0);
$node->start;
is( $node->safe_psql('postgres',
		"SELECT string_agg(usagecount::text, ' ' ORDER BY bufferid) FROM pg_buffercache WHERE bufferid - 1 IN ($slots[0], $slots[1], $slots[2])"),
	'3 5 0', 'usage counts are restored, and bounded');
is(checksums($node), $expected, 'usage counts: contents are right');

$node->stop;
done_testing();

sub offset_of
{
	return DESCRIPTORS_OFFSET + $_[0] * DESCRIPTOR_SIZE;
}

# Flip a bit in a byte of a descriptor.
sub flip
{
	my ($slot, $byte) = @_;
	my $at = offset_of($slot) + $byte;

	write_bytes($pool, $at, chr(ord(read_bytes($pool, $at, 1)) ^ (1 << int rand 8)));
	return;
}

# Let a slot claim the page of another one.
sub duplicate
{
	my ($original, $slot) = @_;

	write_descriptor($pool, $slot,
		block_number => read_descriptor($pool, $original)->{block_number});
	return;
}

# Cached blocks of the table, and none of them twice.
sub cached_blocks
{
	return $node->safe_psql('postgres', q{
SELECT count(DISTINCT relblocknumber) FROM pg_buffercache
WHERE relfilenode = pg_relation_filenode('t_heap') AND relforknumber = 0
HAVING count(DISTINCT relblocknumber) = count(*)});
}
