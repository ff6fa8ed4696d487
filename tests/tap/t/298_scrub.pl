
# Copyright (c) 2026, the persistent-cache developers

# Rows of a table that was dropped are in free slots of the pool.  A clean stop
# overwrites them, on persistent memory or wherever it is told to, and nothing else:
# what is kept is kept, and a power cut afterwards brings nothing back.

use strict;
use warnings FATAL => 'all';

use PCache;
use PCache::PowerCut;
use PostgreSQL::Test::Utils;
use Test::More;

my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
plan skip_all => 'pg_pcache was built without libpmem' if slurp_file("$bindir/pg_pcache") !~ /pmem_flush/;

my $secret = 'dropped row of a secret table';

# How many of these rows does the pool have?
sub rows_in_pool
{
	my ($node) = @_;
	my $n = () = slurp_file(pool_file($node)) =~ /\Q$secret\E/g;

	return $n;
}

sub drop_rows
{
	my ($node, $rows) = @_;

	$node->safe_psql('postgres', qq{
CREATE TABLE secret AS SELECT i, '$secret' AS t FROM generate_series(1, ${\ ($rows // 3000)}) i;
CHECKPOINT;
DROP TABLE secret});
	return;
}

# Stop, and return how many slots the stop has overwritten.
sub overwritten
{
	my ($node) = @_;
	my $offset = log_offset($node);

	$node->stop;
	return slurp_file($node->logfile, $offset) =~ /persistent cache: overwrote (\d+) free slots?$/m ? $1 : 0;
}

sub is_kept
{
	my ($node, $expected, $name) = @_;
	my $offset = log_offset($node);

	$node->start;
	is(start_outcome($node, $offset)->{start}, 'warm', "$name: the next start is warm");
	is(checksums($node), $expected, "$name: contents are right");
	return;
}

for my $forced (0, 1)
{
	local $ENV{PMEM_IS_PMEM_FORCE} = $forced;
	my $on = $forced ? 'persistent memory' : 'memory';
	my $node = new_node("main$forced", shared_buffers => '16MB', size => '20MB');
	my ($expected, $n);

	$node->start;
	load_data($node);
	$expected = checksums($node);
	warm_up($node);

	drop_rows($node);
	$n = overwritten($node);
	if ($forced)
	{
		cmp_ok($n, '>', 10, "$on, auto: overwrites free slots");
		is(rows_in_pool($node), 0, "$on, auto: no dropped row is left");
	}
	else
	{
		is($n, 0, "$on, auto: overwrites nothing");
		cmp_ok(rows_in_pool($node), '>', 1000, "$on, auto: dropped rows are left");
	}
	$node->append_conf('postgresql.conf', 'pcache.scrub = off');
	is_kept($node, $expected, "$on, auto");

	drop_rows($node);
	is(overwritten($node), 0, "$on, off: overwrites nothing");
	cmp_ok(rows_in_pool($node), '>', 1000, "$on, off: dropped rows are left");
	$node->append_conf('postgresql.conf', 'pcache.scrub = on');
	is_kept($node, $expected, "$on, off");

	cmp_ok(overwritten($node), '>', 10, "$on, on: overwrites free slots, also those that were used before the last start");
	is(rows_in_pool($node), 0, "$on, on: no dropped row is left");
	is_kept($node, $expected, "$on, on");
	is(overwritten($node), 0, "$on, on: what is zero already is not overwritten");

	# Slots that smaller shared buffers do not have.
	$node->append_conf('postgresql.conf', 'pcache.scrub = off');
	$node->start;
	drop_rows($node, 100_000);
	$node->stop;
	$node->append_conf('postgresql.conf', "pcache.scrub = on\nshared_buffers = 4MB");
	$node->start;
	cmp_ok(overwritten($node), '>', 500, "$on, smaller: overwrites slots that are not used any more");
	is(rows_in_pool($node), 0, "$on, smaller: no dropped row is left");
	is_kept($node, $expected, "$on, smaller");
	$node->stop;
}

# The zeros are durable before the pool is clean, and so is all that is kept.
SKIP:
{
	skip powercut_missing(), 4 if powercut_missing();
	my $seed = seed_random();
	my $dir = pool_root() . '/cut';
	local %ENV = (%ENV, powercut_environment($dir, $seed));
	my $node = new_node('cut', shared_buffers => '16MB');
	my $expected;

	$node->start;
	load_data($node);
	$expected = checksums($node);
	drop_rows($node);
	cmp_ok(overwritten($node), '>', 10, 'power cut: overwrites free slots');
	cut_power($dir, $seed);
	is(rows_in_pool($node), 0, 'power cut: no dropped row comes back');
	is_kept($node, $expected, 'power cut');
	$node->stop;
}

done_testing();
