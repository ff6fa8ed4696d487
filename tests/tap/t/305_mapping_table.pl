
# Copyright (c) 2026, the persistent-cache developers

# The mapping table is chains of buffer numbers, whatever the number of buffers
# and the mode are.  All of its memory is accounted for, and pages are found, replaced
# and dropped.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

# The fewest buffers, and numbers around that of partitions, which is 128.
my %buckets = (16 => 128, 127 => 128, 128 => 128, 129 => 256, 2048 => 2048);

for my $mode (qw(off planned_restart always))
{
	my $node = new_node($mode, mode => $mode, shared_buffers => 2048);

	$node->start;
	load_data($node);
	$node->safe_psql('postgres', q{
CREATE TABLE wide AS SELECT i, repeat('x', 500) AS filler FROM generate_series(1, 3000) i});
	my $expected = checksums($node);

	for my $buffers (sort { $a <=> $b } keys %buckets)
	{
		my $name = "$mode, $buffers buffers";

		$node->append_conf('postgresql.conf', "shared_buffers = $buffers\nmax_connections = 10");
		$node->restart;
		is($node->safe_psql('postgres', q{SELECT setting FROM pg_settings WHERE name = 'shared_buffers'}), $buffers,
			"$name: it has so many");
		is($node->safe_psql('postgres', q{
SELECT size FROM pg_shmem_allocations WHERE name = 'Shared Buffer Lookup Table'}),
			128 + 8 * ($buckets{$buffers} + $buffers), "$name: the table has that much memory");
		is(checksums($node), $expected, "$name: contents are right");

		# each page is in one buffer
		is($node->safe_psql('postgres', q{
SELECT count(*) FROM (SELECT FROM pg_buffercache WHERE relfilenode IS NOT NULL
	GROUP BY reltablespace, reldatabase, relfilenode, relforknumber, relblocknumber
	HAVING count(*) > 1) twice}), 0, "$name: no page is in two buffers");

		$node->safe_psql('postgres', q{
SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE pinning_backends = 0});
		is($node->safe_psql('postgres', 'SELECT count(*), sum(i), sum(length(filler)) FROM wide'),
			'3000|4501500|1500000', "$name: contents are right after buffers were evicted");

		# an unpatched server with so few buffers cannot extend a table by several pages
		next if $buffers == 16;

		# truncated and dropped pages are gone
		$node->safe_psql('postgres', q{
CREATE TABLE gone AS SELECT i, repeat('y', 500) AS filler FROM generate_series(1, 500) i;
DELETE FROM gone WHERE i > 100; VACUUM gone;
UPDATE wide SET filler = repeat('z', 500) WHERE i % 7 = 0;
UPDATE wide SET filler = repeat('x', 500) WHERE i % 7 = 0;
VACUUM wide});
		is($node->safe_psql('postgres', 'SELECT count(*), sum(i) FROM gone'), '100|5050', "$name: a table that was truncated");
		is($node->safe_psql('postgres', q{
WITH file AS MATERIALIZED (SELECT pg_relation_filenode('gone') AS node) SELECT count(*) FROM pg_buffercache, file
	WHERE relfilenode = node AND relforknumber = 0 AND relblocknumber >= pg_relation_size('gone') / 8192}),
			0, "$name: no page beyond its end is in a buffer");
		my $filenode = $node->safe_psql('postgres', q{SELECT pg_relation_filenode('gone')});
		$node->safe_psql('postgres', 'DROP TABLE gone');
		is($node->safe_psql('postgres', "SELECT count(*) FROM pg_buffercache WHERE relfilenode = $filenode"),
			0, "$name: no page of a dropped table is in a buffer");
	}
	$node->stop;
}

done_testing();
