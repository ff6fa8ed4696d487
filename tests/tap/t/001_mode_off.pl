
# Copyright (c) 2026, the persistent-cache developers

# With persistent_cache_mode = off, which is the default, there is no trace of
# the cache.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', mode => undef);

$node->start;
is($node->safe_psql('postgres', 'SHOW persistent_cache_mode'),
	'off', 'off is the default');
is($node->safe_psql('postgres', 'SHOW persistent_cache_directory'),
	'pg_pcache', 'default of persistent_cache_directory');
is($node->safe_psql('postgres', 'SHOW persistent_cache_numa'),
	'warn', 'default of persistent_cache_numa');
load_data($node);

my $expected = checksums($node);
my $main_size = $node->safe_psql('postgres', q{
SELECT size FROM pg_shmem_allocations WHERE name = 'Buffer Blocks'});

cmp_ok($main_size, '>=', 32 * 1024 * 1024,
	'the blocks are in the main shared memory segment');
is( $node->safe_psql('postgres',
		q{SELECT count(*) FROM pg_shmem_allocations WHERE name = 'Persistent Cache'}),
	0, 'no shared memory for the cache');

warm_up($node);
my $offset = log_offset($node);
$node->restart;
is(cached_table_pages($node), 0, 'nothing is kept');
cmp_ok(relation_reads($node), '>', 500, 'the tables are read again');
is(checksums($node), $expected, 'contents are the same');
$node->stop;
unlike(slurp_file($node->logfile), qr/persistent cache:/,
	'no word of the cache in the log');
is_deeply([ glob $node->data_dir . '/pg_pcache*' ],
	[], 'no files of the cache in the data directory');

# Turning it on takes effect at a restart only.
$node->start;
my ($rc, $out, $err) = $node->psql('postgres',
	"SET persistent_cache_mode = 'planned_restart'");
like($err, qr/parameter "persistent_cache_mode" cannot be changed without restarting the server/,
	'the mode cannot be set in a session');
$node->stop;

# The same cluster with a pool that it was given but does not use.
add_pool($node);
set_mode($node, 'off');
my $pool = slurp_file(pool_file($node));
my $state = slurp_file(state_file($node));
$node->start;
is(checksums($node), $expected, 'off with a pool: contents are the same');
$node->stop;
ok(slurp_file(pool_file($node)) eq $pool, 'off: the pool was not touched');
is(slurp_file(state_file($node)), $state, 'off: its record was not touched');

# And now it does: the blocks move out of the main segment.
set_mode($node, 'planned_restart');
$node->start;
is( $node->safe_psql('postgres',
		q{SELECT count(*) FROM pg_shmem_allocations WHERE name = 'Buffer Blocks'}),
	0, 'on: the blocks are not in the main shared memory segment');
is(checksums($node), $expected, 'on: contents are the same');
is($node->safe_psql('postgres', 'SHOW persistent_cache_mode'),
	'planned_restart', 'on: the mode is shown');
restart_warm($node, 'on');
$node->stop;

for my $case (
	[ 'persistent_cache_mode', 'sometimes',
		qr/invalid value for parameter "persistent_cache_mode": "sometimes".*HINT:  Available values: off, planned_restart, always\./s ],
	[ 'persistent_cache_numa', 'maybe',
		qr/invalid value for parameter "persistent_cache_numa": "maybe".*HINT:  Available values: off, warn, bind\./s ])
{
	my ($name, $value, $message) = @$case;

	command_fails_like(
		[ 'postgres', '-D' => $node->data_dir, '-C' => $name, '-c' => "$name=$value" ],
		$message, "bad value of $name");
}

done_testing();
