
# Copyright (c) 2026, the persistent-cache developers

# When shared_buffers gets smaller the hottest pages are kept, wherever they
# lie: they are moved to slots that stay.  pg_pcache verify foretells what the
# server then does, in both modes, after a clean stop and after a crash.

use strict;
use warnings FATAL => 'all';

use PCache;
use PCache::HotAndCold;
use PostgreSQL::Test::Utils;
use Test::More;

# 64MB are 8192 slots, and 32MB are 4096.
use constant FEWER => 4096;

my ($node, $offset, $verdict, $outcome, $expected);

for my $mode (qw(planned_restart always))
{
	$node = new_node($mode, mode => $mode, size => '64MB', shared_buffers => '64MB');
	make_tables();

	# After a clean stop: the hot table is in slots that go.
	fill_slots("$mode: before");
	$node->stop;
	resize('32MB');
	$verdict = verify_json($node, '--pages');
	is($verdict->{rc}, 0, "$mode: pg_pcache verify says warm");
	is($verdict->{slots}, FEWER, "$mode: pg_pcache verify knows the new size");
	is($verdict->{pages}{kept}, FEWER, "$mode: all slots that are left will have a page");
	is($verdict->{pages}{kept} + $verdict->{pages}{not_fitting}, $verdict->{saved_pages},
		"$mode: the others do not fit");
	is($verdict->{pages}{free}, 0, "$mode: no slot stays free");
	is($verdict->{compared}{equal} + $verdict->{compared}{hint_bits}, FEWER,
		"$mode: pg_pcache verify compares the pages that will be kept, wherever they lie");
	start_as_foretold("$mode, clean stop");
	is(cached('hot'), pages('hot'), "$mode: all of the hot table is cached");
	is(hot_blocks_read(), 0, "$mode: and is not read again");
	# the clock sweep may have been there since
	cmp_ok($node->safe_psql('postgres', q{
SELECT min(usagecount) FROM pg_buffercache WHERE relforknumber = 0
  AND relfilenode = pg_relation_filenode('hot')}), '>=', 3, "$mode: with its usage counts");
	contents("$mode, clean stop");

	# More slots again: what lay in them two starts ago must not come back.
	$node->safe_psql('postgres', 'UPDATE hot SET v = reverse(v) WHERE id % 9 = 0; CHECKPOINT');
	$expected = hot_and_cold_sums($node);
	$node->safe_psql('postgres', "SELECT pg_prewarm('hot')");
	$node->stop;
	resize('64MB');
	start_as_foretold("$mode, more slots again");
	is($outcome->{dropped}{'not fitting'}, undef, "$mode, more slots again: all fits");
	cmp_ok($outcome->{kept}, '<=', FEWER, "$mode, more slots again: nothing from before came back");
	contents("$mode, more slots again");

	# Most slots are free now: all that is hot fits, and the rest, too.
	$node->stop;
	resize('60MB');
	start_as_foretold("$mode, a few slots less");
	is($outcome->{dropped}{'not fitting'}, undef, "$mode, a few slots less: all fits");
	contents("$mode, a few slots less");

	crash_and_shrink() if $mode eq 'always';
	$node->stop;
}

done_testing();

# Crashes: pages of both tables are dirty, and some are not sealed.
sub crash_and_shrink
{
	fill_slots('crash: before');
	# descriptors have the usage counts of the moment at which they were stored
	$node->restart;
	is(cached('hot'), pages('hot'), 'crash: warm before');
	$node->safe_psql('postgres', q{
SET enable_indexscan = off;
UPDATE hot SET v = reverse(v) WHERE id % 40 = 0;
UPDATE cold SET v = reverse(v) WHERE id % 100 = 0;
SELECT pg_prewarm('hot') FROM generate_series(1, 4)});
	$expected = hot_and_cold_sums($node);
	wait_for_seals();
	kill_all($node);
	resize('32MB');
	start_as_foretold('crash');
	cmp_ok($outcome->{dropped}{'not fitting'}, '>', 0, 'crash: not all fits');
	cmp_ok($outcome->{log} =~ /persistent cache: (\d+) of the kept pages are dirty/ ? $1 : 0,
		'>', 100, 'crash: some of the kept pages are dirty');
	cmp_ok(cached('hot'), '>=', 0.98 * pages('hot'), 'crash: the hot table is cached');
	contents('crash');

	# And again, before anything was stopped cleanly.
	$node->safe_psql('postgres', 'UPDATE hot SET v = reverse(v) WHERE id % 50 = 1');
	$expected = hot_and_cold_sums($node);
	wait_for_seals();
	kill_all($node);
	resize('16MB');
	start_as_foretold('crash, still fewer slots');
	contents('crash, still fewer slots');
	$node->stop;

	# The data files have what the kept pages had.
	set_mode($node, 'off');
	$node->start;
	is(hot_and_cold_sums($node), $expected, 'crash: the data files have it all');
	return;
}

sub make_tables
{
	$node->start;
	make_hot_and_cold($node, 21000, 8000);
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
	$expected = hot_and_cold_sums($node);
	return;
}

# Have the cold table in the first slots, and then the hot one.
sub fill_slots
{
	my ($name) = @_;
	my $staying = FEWER;

	$node->stop;
	warm_hot_and_cold($node, "$name: an empty pool");
	is($node->safe_psql('postgres', qq{
SELECT count(*) FROM pg_buffercache WHERE relforknumber = 0
  AND relfilenode = pg_relation_filenode('hot') AND bufferid <= $staying}),
		0, "$name: the hot table is in slots that go");
	return;
}

sub resize
{
	$node->adjust_conf('postgresql.conf', 'shared_buffers', $_[0]);
	return;
}

# Start the server: it keeps and drops what pg_pcache verify has foretold, says
# so in its log and in the view, and has it in shared buffers.
sub start_as_foretold
{
	my ($name) = @_;
	my $view;

	($verdict, $outcome, $offset) = foretold_start($node, $name);
	is($outcome->{slots}, $verdict->{slots}, "$name: number of slots")
	  if $verdict->{pages}{not_fitting} > 0;
	$view = $node->safe_psql('postgres', q{
SELECT kept || ' ' || dropped || ' ' || (dropped_by_reason->>'not_fitting')
FROM pg_pcache_pool()});
	is($view, join(' ', $outcome->{kept}, $outcome->{saved} - $outcome->{kept},
			$verdict->{pages}{not_fitting}), "$name: the view says the same");
	cmp_ok(valid_buffers($node), '>=', $outcome->{kept}, "$name: they are in shared buffers");
	pages_equal_disk($node, $name);
	return;
}

sub contents
{
	is(hot_and_cold_sums($node), $expected, "$_[0]: contents are right");
	is($node->safe_psql('postgres', q{
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FILTER (WHERE v IS NULL) FROM (SELECT v FROM hot WHERE id > 0 OFFSET 0) s}),
		0, "$_[0]: the index finds the rows");
	return;
}

# Read all of the hot table, and return how many blocks of it were not cached.
sub hot_blocks_read
{
	$node->safe_psql('postgres', q{
SELECT pg_stat_reset_single_table_counters('hot'::regclass);
SELECT count(v) FROM hot;
SELECT pg_stat_force_next_flush()});
	return $node->safe_psql('postgres',
		q{SELECT heap_blks_read FROM pg_statio_user_tables WHERE relname = 'hot' AND heap_blks_hit > 0});
}

sub pages
{
	return $node->safe_psql('postgres', "SELECT pg_relation_size('$_[0]') / 8192");
}

sub cached
{
	return $node->safe_psql('postgres', qq{
SELECT count(*) FROM pg_buffercache WHERE relforknumber = 0
  AND relfilenode = pg_relation_filenode('$_[0]')});
}
