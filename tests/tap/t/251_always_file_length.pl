
# Copyright (c) 2026, the persistent-cache developers

# Mode always, over a power loss: the metapage of an SP-GiST index names pages that
# were used last, without WAL.  The kernel may have lost the new length of the
# index with these pages, so such a metapage is not kept.

use strict;
use warnings FATAL => 'all';

use lib "$ENV{PCACHE_ROOT}/tests/torture";

use IndexCheck;
use PCache;
use PCache::PowerCut;
use PostgreSQL::Test::Utils;
use Test::More;

need_powercut();

my $seed = seed_random();

my $dir = pool_root() . '/main';
%ENV = (%ENV, powercut_environment($dir, $seed));
my $node = new_node('main',
	mode => 'always',
	conf => powercut_conf() . qq{
persistent_cache_on_media_unknown = cold
wal_writer_delay = 10s
synchronous_commit = off});
my %length;

$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION pg_pcache;
CREATE TABLE t (id int, p text);
CREATE INDEX t_p ON t USING spgist (p)});
$node->safe_psql('postgres', "SET synchronous_commit = on; " . insert(1, 3000));
$node->safe_psql('postgres', 'CHECKPOINT');
my @files = map { $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('$_')") } qw(t t_p);
@length{@files} = map { -s $_ } @files;

# Nothing of this is durable, neither the WAL nor the length of the files.
kill 'STOP', $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");
my $flushed = $node->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');
$node->safe_psql('postgres', insert($_, 100)) for map { 3000 + 100 * $_ } 0 .. 29;
cmp_ok(-s $_, '>', $length{$_}, 'the file has grown') for @files;
$node->poll_query_until('postgres', 'SELECT queue_length = 0 FROM pg_stat_pcache')
  or BAIL_OUT('the sealer does not come to an end');
is($node->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()'), $flushed, 'WAL is not durable');
kill_all($node);
cut_power($dir, $seed);
truncate $_, $length{$_} or die "$_: $!" for @files;

my $offset = log_offset($node);
$node->start;
my $outcome = start_outcome($node, $offset);
is($outcome->{start}, 'warm', 'power loss: warm start') or diag($outcome->{reason});
cmp_ok($outcome->{dropped}{'no LSN'} // 0, '>=', 1, 'power loss: the metapage is not kept');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 3000, 'power loss: the rows that were durable');
for my $i (0 .. 29)
{
	my ($rc, $out, $err) = $node->psql('postgres', insert(3000 + 100 * $i, 100));
	is($err, '', "power loss: insert $i") or last;
}
my $result = index_check(sub { return $node->safe_psql($_[0], $_[1]) }, 'postgres', writable => 1);
is_deeply($result->{problems}, [], 'power loss: the index finds all rows');

# Once a checkpoint has made the length durable, it is kept like any other.  And
# while the kernel survives, it knows the length.
$node->safe_psql('postgres', 'CHECKPOINT');
seal_and_kill_all();
cut_power($dir, $seed + 1);
is(start_and_count_dropped(), 0, 'power loss after a checkpoint: the metapage is kept');
$node->safe_psql('postgres', 'SET synchronous_commit = on; ' . insert(9000, 100));
seal_and_kill_all();
is(start_and_count_dropped(), 0, 'process crash: the metapage is kept');
$node->stop;
done_testing();

sub insert
{
	my ($first, $n) = @_;

	return "INSERT INTO t SELECT i, md5(i::text) FROM generate_series($first + 1, $first + $n) i";
}

sub seal_and_kill_all
{
	$node->poll_query_until('postgres', 'SELECT queue_length = 0 FROM pg_stat_pcache')
	  or BAIL_OUT('the sealer does not come to an end');
	kill_all($node);
	return;
}

# How many pages were dropped for lack of an LSN, or as names of blocks?
sub start_and_count_dropped
{
	my $from = log_offset($node);

	$node->start;
	my $started = start_outcome($node, $from);
	return $started->{start} eq 'warm' ? $started->{dropped}{'no LSN'} // 0 : 'cold';
}
