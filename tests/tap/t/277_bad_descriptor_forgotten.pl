
# Copyright (c) 2026, the persistent-cache developers

# A descriptor on a bad block is not stored, so it goes on saying what it said
# before.  If the list of bad blocks is lost afterwards, and the block can be
# read, the descriptor must not be believed.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_inject_module();


# planned_restart: another page is in the slot when the server stops, and its
# descriptor cannot be stored.
{
	my $node = make_node('planned_restart');
	my ($slot, $heap) = slot_of_heap($node);
	my ($expected, $offset, $outcome);

	$node->restart;
	$node->safe_psql('postgres', q{
CREATE TABLE scratch AS SELECT i, repeat('x', 1500) FROM generate_series(1, 25000) i});
	$expected = checksums($node, tables => [LOGGED]);
	$node->safe_psql('postgres', "SELECT pg_buffercache_evict(@{[ $slot + 1 ]})");
	$node->safe_psql('postgres', 'SELECT pg_prewarm($$scratch$$)') for 1 .. 6;
	is(page_in($node, $slot), 'scratch', 'planned_restart: there is another page in the slot');
	# nor in another one, since then both would be dropped
	$node->safe_psql('postgres', q{
SELECT pg_buffercache_evict(bufferid) FROM pg_buffercache
WHERE relfilenode = pg_relation_filenode('t_heap')});
	set_bad($node, $slot);
	reload_until($node, 'pcache_inject.bad_blocks', '<>', '');
	$node->stop;
	set_bad($node);

	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', 'planned_restart: the next start is warm');
	is($outcome->{dropped}{'bad block'}, 1, 'planned_restart: but for that slot');
	is(checksums($node, tables => [LOGGED]), $expected, 'planned_restart: contents are right');
	$node->stop;
}

# always: the slot is not used, and keeps an old version of the page.
{
	my $node = make_node('always');
	my ($slot, $heap) = slot_of_heap($node);
	my ($expected, $offset, $outcome);

	wait_for_seals();
	kill_all($node);
	set_bad($node, $slot);
	$node->start;
	$node->safe_psql('postgres', 'UPDATE t_heap SET grp = -1 WHERE id % 3 = 0');
	$expected = checksums($node, tables => [LOGGED]);
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->safe_psql('postgres', q{
SELECT pg_buffercache_evict(bufferid) FROM pg_buffercache
WHERE relfilenode = pg_relation_filenode('t_heap')});
	$node->safe_psql('postgres', 'CHECKPOINT');
	wait_for_seals();
	kill_all($node);
	set_bad($node);

	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', 'always: the next start is warm');
	is($outcome->{dropped}{'bad block'}, 1, 'always: but for that slot');
	is(checksums($node, tables => [LOGGED]), $expected, 'always: contents are right');

	# A new pool has forgotten it.
	$node->stop;
	is((pcache($node, 'init', '--force', '--directory' => pool_dir($node)))[0], 0, 'init --force');
	$node->start;
	is($node->safe_psql('postgres', 'SELECT retired FROM pg_pcache_pool'), '0',
		'a new pool: all slots are used');
	$node->stop;
}

# More of them than the pool can note.  What they say then must not be believed,
# although the server was in mode always, and its stop was clean.
{
	my $node = make_node('always', 'many');
	my $offset = log_offset($node);

	set_bad($node, map { 2 * $_ } 0 .. 299);
	reload_until($node, 'pcache_inject.bad_blocks', '<>', '');
	$node->stop;
	like(slurp_file($node->logfile, $offset), qr/not saved: too many blocks of pool ".*" are bad/, 'too many: nothing is saved');
	set_bad($node);
	$offset = log_offset($node);
	$node->start;
	like(start_outcome($node, $offset)->{reason}, qr/^the last start did not reach a consistent state, or/, 'too many: the next start is cold');
	$node->stop;

	# a start that cannot note them does without the pool
	is((pcache($node, 'init', '--force', '--directory' => pool_dir($node)))[0], 0, 'init --force');
	set_bad($node, map { 2 * $_ } 0 .. 299);
	$node->append_conf('postgresql.conf', 'persistent_cache_required = off');
	$offset = log_offset($node);
	$node->start;
	like(slurp_file($node->logfile, $offset),
		qr/WARNING: .*cannot be used: too many of its blocks are bad\n.*DETAIL:  The server starts without the persistent cache\./,
		'too many at a start: it is without the pool');
	$node->stop;
}

done_testing();

sub make_node
{
	my ($mode, $name) = @_;
	my $node = new_node($name // $mode, mode => $mode, conf => q{
shared_preload_libraries = 'pcache_inject'
pcache_inject.media = 'clean'});

	$node->start;
	load_data($node);
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
	warm_up($node);
	return $node;
}

# A slot that has a page of t_heap.
sub slot_of_heap
{
	my ($node) = @_;

	return $node->safe_psql('postgres', q{
SELECT bufferid - 1 FROM pg_buffercache
WHERE relfilenode = pg_relation_filenode('t_heap') AND relforknumber = 0
  AND relblocknumber = 20});
}

sub page_in
{
	my ($node, $slot) = @_;

	return $node->safe_psql('postgres', qq{
SELECT relname FROM pg_buffercache b JOIN pg_class c ON b.relfilenode = pg_relation_filenode(c.oid)
WHERE bufferid = $slot + 1 AND reldatabase =
  (SELECT oid FROM pg_database WHERE datname = current_database())});
}

# The descriptors of these slots are on bad blocks, and no others.
sub set_bad
{
	my ($node, @slots) = @_;
	my $list = join ',', map { sprintf '%d:%d', DESCRIPTORS_OFFSET + $_ * DESCRIPTOR_SIZE, DESCRIPTOR_SIZE } @slots;

	$node->adjust_conf('postgresql.conf', $_, undef)
	  for qw(pcache_inject.bad_blocks pcache_inject.media);
	$node->append_conf('postgresql.conf', @slots > 0 ? "pcache_inject.bad_blocks = '$list'" : "");
	return;
}
