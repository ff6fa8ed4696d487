
# Copyright (c) 2026, the persistent-cache developers

# Mode always: pages of relations that shrink, vanish, are made anew or are
# replaced below the buffer manager.  Each case is one in which a missing mark,
# gate or drop would bring a stale page back, or lose a change.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# wal_level is minimal for relations that are filled without WAL
my $node = new_node('main', mode => 'always',
	conf => "wal_level = minimal\nmax_wal_senders = 0\nwal_skip_threshold = 0\nfull_page_writes = off");
my ($valid, $outcome, $count);

$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION pg_buffercache;
CREATE EXTENSION pg_prewarm;
CREATE EXTENSION pg_visibility});

# --- a table that VACUUM cuts and that grows again: more buffers of the old tail
# are free than are used afterwards, and the new tail is not in shared buffers
$node->safe_psql('postgres', q{
CREATE TABLE cut (id int, filler char(1000));
INSERT INTO cut SELECT i, 'old' FROM generate_series(1, 1600) i;
CHECKPOINT});
wait_for_seals();
$node->safe_psql('postgres', 'DELETE FROM cut WHERE id > 70');
# the tail is sealed as it is when it is cut off
$node->safe_psql('postgres', 'VACUUM (TRUNCATE off) cut');
wait_for_seals();
$node->safe_psql('postgres', 'VACUUM cut');
is(blocks('cut'), 10, 'cut: VACUUM has cut the tail off');
$node->safe_psql('postgres', q{INSERT INTO cut SELECT i, 'new' FROM generate_series(71, 210) i});
is(blocks('cut'), 30, 'cut: it grows again');
# sets hint bits, so that no redo mends a stale page
$count = table_sum('cut');
$node->safe_psql('postgres', 'CHECKPOINT');
wait_for_seals();
# not read again, lest the free buffers be used
evict('cut');
kill_all($node);
$node->start;
is(table_sum('cut'), $count, 'cut: contents after a crash are those of the new tail');

# --- a page that is evicted, read elsewhere, changed, and evicted again
$node->safe_psql('postgres', q{
CREATE TABLE evicted (id int, filler char(1000)) WITH (fillfactor = 50);
INSERT INTO evicted SELECT i, 'old' FROM generate_series(1, 100) i;
CHECKPOINT});
wait_for_seals();
$node->safe_psql('postgres', 'ALTER SYSTEM SET persistent_cache_seal_delay = 10000');
$node->reload;
wait_for_seals(0.2);
evict('evicted');
$node->safe_psql('postgres', q{
SELECT pg_prewarm('evicted');
UPDATE evicted SET filler = 'new';
CHECKPOINT});
$count = table_sum('evicted');
evict('evicted');
kill_all($node);
$node->start;
is(table_sum('evicted'), $count, 'evicted: contents after a crash are the last ones');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET persistent_cache_seal_delay');
$node->reload;

# --- dropped and truncated: no page of the old file may be there
for my $case ([ 'dropped', 'DROP TABLE gone' ],
	[ 'truncated', 'TRUNCATE gone' ],
	[ 'rewritten', 'VACUUM FULL gone' ],
	[ 'truncated in place', q{BEGIN; CREATE TABLE here AS SELECT * FROM gone; TRUNCATE here; INSERT INTO here SELECT 1, 'x'; COMMIT} ])
{
	my ($name, $sql) = @$case;

	$node->safe_psql('postgres', q{
DROP TABLE IF EXISTS gone;
CREATE TABLE gone (id int, filler char(1000));
INSERT INTO gone SELECT i, 'old' FROM generate_series(1, 400) i;
CHECKPOINT});
	my $file = filenode('gone');

	wait_for_seals();
	$node->safe_psql('postgres', $sql);
	wait_for_seals();
	kill_all($node);
	# the file is still there, cut to nothing, or gone
	my $kept = grep { 1 } sealed_slots(pool_file($node), sub { $_[0]{rel_number} == $file });
	is($kept, 0, "$name: none of its pages is sealed") if $name !~ /place/;
	$outcome = warm_after_crash($node, 0, $name);
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_buffercache WHERE relfilenode = $file"),
		0, "$name: none of its pages is cached")
	  if $name !~ /place/;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM here'), 1, "$name: the new contents")
	  if $name =~ /place/;
}

# --- the file has fewer blocks than the pool: pages at its end and beyond go,
# and the table can grow
$node->safe_psql('postgres', q{
CREATE TABLE short (id int, filler char(1000));
INSERT INTO short SELECT i, 'old' FROM generate_series(1, 140) i;
CHECKPOINT});
my $path = $node->data_dir . '/' . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('short')});
my $lost = blocks('short') - 15;
wait_for_seals();
kill_all($node);
truncate $path, 15 * BLCKSZ or die $!;
$outcome = warm_after_crash($node, 0, 'short');
is($outcome->{dropped}{'beyond end of file'}, $lost, 'short: pages at the end of file and beyond were dropped');
$node->safe_psql('postgres', q{INSERT INTO short SELECT i, 'new' FROM generate_series(1000, 1139) i});
is($node->safe_psql('postgres', 'SELECT count(*) FROM short'), 105 + 140, 'short: it grows');

# --- pages without LSN: kept if they are on disk, dropped if not
$node->safe_psql('postgres', q{
BEGIN;
CREATE TABLE nolsn (id int, p point, filler char(500));
INSERT INTO nolsn SELECT i, point(i % 100, i), 'x' FROM generate_series(1, 3000) i;
CREATE INDEX nolsn_gist ON nolsn USING gist (p);
COMMIT;
CHECKPOINT});
my @files = map { filenode($_) } qw(nolsn nolsn_gist);
# sealed before the checkpoint wrote them, and not changed since
$count = table_sum('nolsn');
$node->safe_psql('postgres', q{SELECT pg_prewarm('nolsn'), pg_prewarm('nolsn_gist')});
wait_for_seals();
$node->safe_psql('postgres', 'CHECKPOINT');
my $unmarked = without_lsn(@files);
my $psql = $node->background_psql('postgres');
$psql->query_safe(q{
BEGIN;
CREATE TABLE orphan (id int, p point, filler char(500));
INSERT INTO orphan SELECT i, point(i % 100, i), 'x' FROM generate_series(1, 3000) i;
CREATE INDEX orphan_gist ON orphan USING gist (p)});
my @orphans = split /\|/, $psql->query_safe(q{SELECT pg_relation_filenode('orphan'), pg_relation_filenode('orphan_gist')});
my $orphaned = $psql->query_safe("SELECT count(*) FROM pg_buffercache WHERE relforknumber = 0 AND relfilenode IN ($orphans[0], $orphans[1])");
wait_for_seals();
kill_all($node);
eval { $psql->quit };
# hint bits gave the table's pages an LSN, but not the index's
cmp_ok($unmarked, '>', 10, 'no LSN: there are clean pages without one');
cmp_ok($orphaned, '>', 100, 'no LSN: and dirty ones');
my $dirty = without_lsn(@orphans);
cmp_ok($dirty, '>=', $orphaned - 5, 'no LSN: which are sealed');
$outcome = warm_after_crash($node, 0, 'no LSN');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_buffercache WHERE relforknumber <> 1 AND relfilenode IN ($orphans[0], $orphans[1])"),
	0, 'no LSN: dirty ones were dropped');
cmp_ok($outcome->{dropped}{'no LSN'} // 0, '>=', $dirty, 'no LSN: for that reason');
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM pg_buffercache WHERE relforknumber = 0 AND relfilenode IN ($files[0], $files[1])"),
	'>=', $unmarked, 'no LSN: clean ones were kept');
is(table_sum('nolsn'), $count, 'no LSN: contents are right');
is($node->safe_psql('postgres', q{SET enable_seqscan = off; SELECT count(*) FROM nolsn WHERE p <@ box '((0,0),(50,5000))'}),
	1530, 'no LSN: the index is right');

# --- visibility map bits are cleared without an LSN: the page must be written
# again, although redo finds nothing to change in it
$node->safe_psql('postgres', q{
CREATE TABLE visible (id int PRIMARY KEY, filler char(100));
INSERT INTO visible SELECT i, 'x' FROM generate_series(1, 5000) i});
$node->safe_psql('postgres', 'VACUUM (ANALYZE) visible');
$node->safe_psql('postgres', 'CHECKPOINT');
$node->safe_psql('postgres', 'DELETE FROM visible WHERE id % 100 = 0');
$node->safe_psql('postgres', q{SELECT pg_prewarm('visible', 'buffer', 'vm')});
wait_for_seals();
kill_all($node);
$outcome = warm_after_crash($node, 0, 'visibility map');
cmp_ok($outcome->{kept}, '>', 0, 'visibility map: something is kept');
$node->safe_psql('postgres', 'CHECKPOINT');
# what is on disk now, without a shutdown checkpoint that could mend it
kill_all($node);
set_mode($node, 'off');
$node->start;
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_check_visible('visible')}), 0,
	'visibility map: no bit on disk says of a deleted row that it is visible');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM visible WHERE id > 0'),
	4950, 'visibility map: an index-only scan finds what is there');
$node->stop;

# --- redo of CREATE DATABASE by file copy, over pages of the copy
my $primary = new_node('primary', mode => undef,
	init => { allows_streaming => 1 }, conf => "allow_in_place_tablespaces = on\nwal_keep_size = 160MB");

$primary->start;
$primary->safe_psql('postgres', q{CREATE EXTENSION pg_buffercache; CREATE EXTENSION pg_prewarm});
$primary->backup('b');
my $standby = new_standby('standby', $primary, 'b', mode => 'always');
$standby->start;
$primary->safe_psql('postgres', q{CREATE DATABASE source});
$primary->safe_psql('source', q{CREATE TABLE t (id int, filler char(1000)); INSERT INTO t SELECT i, 'source' FROM generate_series(1, 70) i});
$primary->safe_psql('postgres', q{CREATE TABLESPACE ts LOCATION ''});
$primary->safe_psql('postgres', q{CREATE TABLESPACE ts2 LOCATION ''});
$primary->wait_for_replay_catchup($standby);
# the last restartpoint of the standby is before all that follows
$standby->restart;

$primary->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE source STRATEGY file_copy');
# changed, and longer, than right after the copy
$primary->safe_psql('copy', q{UPDATE t SET filler = 'copy'; INSERT INTO t SELECT i, 'copy' FROM generate_series(71, 700) i});
# one that stays where it is
$primary->safe_psql('postgres', 'CREATE DATABASE stays TEMPLATE source STRATEGY file_copy');
$primary->safe_psql('stays', q{UPDATE t SET filler = 'stays'; INSERT INTO t SELECT i, 'stays' FROM generate_series(71, 700) i});
# in a tablespace of its own, changed before its database is moved
$primary->safe_psql('copy', q{CREATE TABLE elsewhere (id int, filler char(1000)) TABLESPACE ts2; INSERT INTO elsewhere SELECT i, 'x' FROM generate_series(1, 300) i});
$primary->safe_psql('postgres', 'ALTER DATABASE copy SET TABLESPACE ts');
$primary->safe_psql('copy', q{INSERT INTO t SELECT i, 'moved' FROM generate_series(701, 1000) i});
$primary->wait_for_replay_catchup($standby);
my @copies = ([ 'copy', 't' ], [ 'copy', 'elsewhere' ], [ 'stays', 't' ]);
$standby->safe_psql($_->[0], "SELECT count(*) FROM $_->[1]") for @copies;
wait_for_seals();
my @sums = map { copy_sum($primary, @$_) } @copies;
kill_all($standby);
my $offset = log_offset($standby);
$outcome = warm_after_crash($standby, 0, 'file copy');
$primary->wait_for_replay_catchup($standby);
like(slurp_file($standby->logfile, $offset), qr/redo starts/, 'file copy: there was something to redo');
is(copy_sum($standby, @{ $copies[$_] }), $sums[$_], "file copy: contents of @{ $copies[$_] } are right")
  for 0 .. $#copies;
$standby->promote;
$standby->safe_psql('copy', q{INSERT INTO t SELECT i, 'promoted' FROM generate_series(1, 700) i});
is($standby->safe_psql('copy', 'SELECT count(*) FROM t'), 1700, 'file copy: the table grows');
$standby->stop;
$primary->stop;
done_testing();

sub copy_sum
{
	my ($who, $database, $table) = @_;

	return $who->safe_psql($database, "SELECT count(*), sum(id), min(filler), max(filler) FROM $table");
}

sub blocks
{
	return $node->safe_psql('postgres', "SELECT pg_relation_size('$_[0]') / 8192");
}

sub filenode
{
	return $node->safe_psql('postgres', "SELECT pg_relation_filenode('$_[0]')");
}

sub table_sum
{
	return $node->safe_psql('postgres', "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM $_[0] t");
}

# Write out a relation and take its pages out of shared buffers.
sub evict
{
	my ($table) = @_;
	my $left = $node->safe_psql('postgres', qq{
SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('$table');
SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('$table')});

	is((split /\n/, $left)[-1], 0, "$table: evicted");
	return;
}

# How many pages of these files are sealed without an LSN.
sub without_lsn
{
	my %files = map { $_ => 1 } @_;

	return scalar sealed_slots(pool_file($node),
		sub { $files{ $_[0]{rel_number} } && $_[0]{page_lsn} <= 1 && $_[0]{fork_number} == 0 });
}
