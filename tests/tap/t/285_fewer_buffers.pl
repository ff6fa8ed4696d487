
# Copyright (c) 2026, the persistent-cache developers

# When shared_buffers gets smaller the hottest pages are kept, wherever they lie: they
# are moved to slots that stay.  pg_pcache verify foretells what the server then does,
# after a clean stop and after a kill, with bad blocks and damaged entries.  A start
# that dies while it moves pages leaves nothing to be believed.

use strict;
use warnings FATAL => 'all';

use IPC::Run qw();
use List::Util qw(shuffle sum0);
use PCache;
use PCache::HotAndCold;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# 48MB are 6144 slots, and 24MB are 3072.
use constant FEWER => 3072;

seed_random();
my $node = new_node('main', size => '48MB', shared_buffers => '48MB');
my $pool = pool_file($node);
my ($offset, $verdict, $outcome, $expected, $hot_node);

sub resize { $node->adjust_conf('postgresql.conf', 'shared_buffers', $_[0]); return }
sub pages { return $node->safe_psql('postgres', "SELECT pg_relation_size('$_[0]') / 8192") }

sub cached
{
	return $node->safe_psql('postgres', qq{
SELECT count(*) FROM pg_buffercache WHERE relforknumber = 0
  AND relfilenode = pg_relation_filenode('$_[0]')});
}

# The server stops after this, with the hot table in slots that are to go.
sub fill_slots
{
	my ($name) = @_;
	my $staying = FEWER;

	$node->stop if defined $node->{_pid};
	resize('48MB');
	warm_hot_and_cold($node, "$name: an empty pool");
	is($node->safe_psql('postgres', qq{
SELECT count(*) FROM pg_buffercache WHERE relforknumber = 0
  AND relfilenode = pg_relation_filenode('hot') AND bufferid <= $staying}),
		0, "$name: the hot table is in slots that go");
	$node->stop;
	return;
}

# Start the server: it keeps and drops what pg_pcache verify has foretold, says so in
# its log and in the view, and has it in shared buffers.
sub start_as_foretold
{
	my ($name) = @_;

	($verdict, $outcome, $offset) = foretold_start($node, $name);
	is($node->safe_psql('postgres', q{
SELECT kept || ' ' || dropped || ' ' || (dropped_by_reason->>'not_fitting') FROM pg_pcache_pool()}),
		join(' ', $outcome->{kept}, sum0(values %{ $outcome->{dropped} }), $verdict->{pages}{not_fitting}),
		"$name: the view says the same");
	cmp_ok(valid_buffers($node), '>=', $outcome->{kept}, "$name: they are in shared buffers");
	pages_equal_disk($node, $name);
	is(hot_and_cold_sums($node), $expected, "$name: contents are right");
	return;
}

$node->start;
make_hot_and_cold($node, 14000, 6400);
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
$expected = hot_and_cold_sums($node);
$hot_node = $node->safe_psql('postgres', q{SELECT pg_relation_filenode('hot')});

# ---------------------------------------------------------------- after a clean stop
fill_slots('clean stop');
resize('24MB');
$verdict = verify_json($node, '--pages');
is($verdict->{slots}, FEWER, 'clean stop: pg_pcache verify knows the new size');
is($verdict->{pages}{kept}, FEWER, 'clean stop: all slots that are left will have a page');
is($verdict->{pages}{kept} + $verdict->{pages}{not_fitting}, $verdict->{saved_pages}, 'clean stop: the others do not fit');
is($verdict->{compared}{equal} + $verdict->{compared}{hint_bits}, FEWER,
	'clean stop: pg_pcache verify compares the pages that will be kept, wherever they lie');
start_as_foretold('clean stop');
is(cached('hot'), pages('hot'), 'clean stop: all of the hot table is cached');
# the clock sweep may have been there since
cmp_ok($node->safe_psql('postgres', q{
SELECT min(usagecount) FROM pg_buffercache WHERE relforknumber = 0
  AND relfilenode = pg_relation_filenode('hot')}), '>=', 3, 'clean stop: with its usage counts');

# More slots again: what lay in them two starts ago must not come back.
$node->safe_psql('postgres', 'UPDATE hot SET v = reverse(v) WHERE id % 9 = 0; CHECKPOINT');
$expected = hot_and_cold_sums($node);
$node->safe_psql('postgres', "SELECT pg_prewarm('hot')");
$node->stop;
resize('48MB');
start_as_foretold('more slots again');
is($outcome->{dropped}{'not fitting'}, undef, 'more slots again: all fits');
cmp_ok($outcome->{kept}, '<=', FEWER, 'more slots again: nothing from before came back');

# Most slots are free now: all that is hot fits, and the rest, too.
$node->stop;
resize('44MB');
start_as_foretold('a few slots less');
is($outcome->{dropped}{'not fitting'}, undef, 'a few slots less: all fits');

# ---------------------------------------------------------------- after a kill
$node->stop;
set_mode($node, 'always');
fill_slots('killed');
$node->start;
$node->safe_psql('postgres', q{UPDATE cold SET v = reverse(v) WHERE id % 100 = 0});
$node->safe_psql('postgres', q{SELECT pg_prewarm('hot') FROM generate_series(1, 4); CHECKPOINT});
$node->safe_psql('postgres', q{SET enable_indexscan = off; UPDATE cold SET v = reverse(v) WHERE id % 500 = 1});
$expected = hot_and_cold_sums($node);
kill_seen($node);
resize('24MB');
start_as_foretold('killed');
cmp_ok($outcome->{dropped}{'not fitting'}, '>', 0, 'killed: not all fits');
cmp_ok(cached('hot'), '>=', 0.98 * pages('hot'), 'killed: the hot table is cached');
# And again, before anything was stopped cleanly.
$node->safe_psql('postgres', 'UPDATE hot SET v = reverse(v) WHERE id % 50 = 1');
$expected = hot_and_cold_sums($node);
kill_seen($node);
resize('16MB');
start_as_foretold('killed, still fewer slots');
$node->stop;
set_mode($node, 'planned_restart');

# ---------------------------------------------------------------- bad blocks
# Below slots that stay, with a page and without, and below slots that go: memory errors
# that the pool knows of.  Nobody writes there.
{
	my $pattern = pack 'a8192', 'do not touch me ' x 512;
	my ($at, $memory_errors, @used, @low, @high);

	fill_slots('bad blocks');
	$at = read_superblock($pool)->{blocks_offset};
	@used = sealed_slots($pool);
	@low = (shuffle grep { $_ < FEWER - 64 } @used)[0 .. 19];
	@high = (shuffle grep { $_ >= FEWER + 64 && $_ < 5000 } @used)[0 .. 9];
	# some of them have no page
	write_descriptor($pool, $_, seq => 1) for @low[0 .. 4];
	write_bytes($pool, $at + $_ * BLCKSZ, $pattern) for @low, @high;
	$memory_errors = join '', map { $_ . pack('L', crc32c($_)) }
	  map { pack 'QL', $at + $_ * BLCKSZ + 512, 512 } @low, @high;
	write_bytes($pool, 12288, $memory_errors);
	resize('24MB');
	start_as_foretold('bad blocks');
	is($outcome->{kept}, FEWER - 20, 'bad blocks: all slots but those are used');
	is($outcome->{dropped}{'bad block'}, 15 + 10, 'bad blocks: each of them is counted');
	$node->safe_psql('postgres', "SELECT pg_prewarm('cold'); UPDATE hot SET id = id WHERE id % 3 = 0; CHECKPOINT");
	is(hot_and_cold_sums($node), $expected, 'bad blocks, in use: contents are right');
	$node->stop;
	is(scalar(grep { read_bytes($pool, $at + $_ * BLCKSZ, BLCKSZ) ne $pattern } @low, @high), 0, 'bad blocks: nobody wrote to them');
	# a pool that is made anew does not remember them
	is((pcache($node, 'init', '--force'))[0], 0, 'bad blocks: a new pool');
}

# ---------------------------------------------------------------- damaged entries
# Of two slots that claim one page, the first one is kept, and neither if one of them was
# to make room.  Other damage is told apart.
{
	my (@hot, @cold, $twin);
	my @page = qw(spc_oid db_oid rel_number fork_number block_number flags page_lsn);

	fill_slots('two slots');
	@hot = sealed_slots($pool, sub { $_[0]->{rel_number} == $hot_node && $_[0]->{fork_number} == 0 });
	@cold = grep { $_ < FEWER } sealed_slots($pool, sub { $_[0]->{usage_count} < 2 });
	cmp_ok(scalar @hot, '>', 1000, 'two slots: hot pages');
	cmp_ok(scalar @cold, '>', 1000, 'two slots: cold pages');
	$twin = read_descriptor($pool, $hot[3]);
	write_descriptor($pool, $hot[700], map { $_ => $twin->{$_} } @page, 'usage_count');
	$twin = read_descriptor($pool, $hot[4]);
	write_descriptor($pool, $cold[-1], map { $_ => $twin->{$_} } @page);
	# no such relation, in slots that stay and that go
	write_descriptor($pool, $_, rel_number => 4000000000) for @cold[5, 6], @hot[800 .. 802];
	resize('24MB');
	start_as_foretold('two slots');
	is($outcome->{dropped}{duplicate}, 1 + 2, 'two slots: one of two hot ones is kept, and none of a hot and a cold one');
	is($outcome->{dropped}{'no such relation'}, 5, 'two slots: other pages are dropped');
}

# ---------------------------------------------------------------- dies while it moves pages
SKIP:
{
	skip 'gdb is not installed', 1 if !grep { -x "$_/gdb" } split /:/, $ENV{PATH};
	my ($bindir) = run_command([ 'pg_config', '--bindir' ]);

	fill_slots('killed while it moves pages');
	resize('24MB');
	is(verify_json($node)->{rc}, 0, 'killed while it moves pages: it would be warm');
	{
		local %ENV = $node->_get_env();
		IPC::Run::run([ qw(gdb -nx -batch -iex), 'set breakpoint pending on', '-iex', 'set auto-load off', '-iex', 'set debuginfod enabled off',
				'-ex' => 'handle all nostop noprint pass', '-ex' => 'break PCacheShrinkNextMove', '-ex' => 'run', '-ex' => 'ignore 1 700', '-ex' => 'continue',
				'-ex' => 'bt 3', '-ex' => 'kill', '--args', "$bindir/postgres", '-D', $node->data_dir ],
			'<' => \undef, '>' => \my $out, '2>&1', IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
		skip "gdb cannot stop the start there: $out", 1 if $out !~ /^#0.*PCacheShrinkNextMove.*\n.*PCacheMoveHottest/m;
	}
	unlink $node->data_dir . '/postmaster.pid';
	is(read_superblock($pool)->{state}, STATE_ATTACHING, 'killed while it moves pages: the pool says so');
	$verdict = verify_json($node);
	is("$verdict->{rc} $verdict->{reason}", '2 attaching', 'killed while it moves pages: pg_pcache verify says why it is cold');
	resize('48MB');
	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'cold', 'killed while it moves pages: cold');
	is($outcome->{reason}, $verdict->{detail}, 'killed while it moves pages: for the reason that was foretold');
	is(hot_and_cold_sums($node), $expected, 'killed while it moves pages: contents are right');
}
$node->stop;

done_testing();
