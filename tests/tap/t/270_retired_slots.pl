
# Copyright (c) 2026, the persistent-cache developers

# A slot over bad memory is not used, but it has an address: whoever looks at
# all of shared buffers, as pg_buffercache_numa does, must come away alive.  The
# memory is the last slot's; it goes bad for good when the file is cut off
# there, after which the kernel sends SIGBUS to each process that touches it.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_inject_module();

for my $mode (qw(always planned_restart))
{
	my $node = new_node($mode, mode => $mode,
		conf => "restart_after_crash = on\nshared_preload_libraries = 'pcache_inject'");
	my ($offset, $stderr, $rc);

	$node->start;
	load_data($node);
	$node->safe_psql('postgres', q{
CREATE EXTENSION pg_pcache;
CREATE FUNCTION break(int) RETURNS void AS 'pcache_inject', 'pcache_inject_break' LANGUAGE C;
CREATE FUNCTION touch(int, int) RETURNS int8 AS 'pcache_inject', 'pcache_inject_touch' LANGUAGE C});
	my $expected = checksums($node, tables => [LOGGED]);
	my $buffers = $node->safe_psql('postgres',
		"SELECT setting FROM pg_settings WHERE name = 'shared_buffers'");
	my $size = -s pool_file($node);
	my $sb = read_superblock(pool_file($node));
	is($size, $sb->{blocks_offset} + $buffers * BLCKSZ, "$mode: the pool ends with the last slot");

	# The server learns of it by a memory error.
	$offset = log_offset($node);
	$node->psql('postgres', "SELECT break($buffers); SELECT touch($buffers, $buffers)", stderr => \$stderr);
	$node->wait_for_log(qr/was terminated by signal 7: Bus error/, $offset);
	wait_until_back($node);
	is($node->safe_psql('postgres', 'SELECT retired, media FROM pg_pcache_pool'),
		'1|bad', "$mode: the slot is retired");

	truncate pool_file($node), $size - BLCKSZ or die "could not truncate the pool: $!";
	$offset = log_offset($node);
	$rc = $node->psql('postgres', "SELECT touch(1, $buffers) >= $buffers", stdout => \my $out, stderr => \$stderr);
	is("$rc $out", '0 t', "$mode: all of shared buffers can be read") or diag($stderr);

	# The same by PostgreSQL's own module, where the host has it.
	SKIP:
	{
		$rc = $node->psql('postgres', 'SELECT pg_numa_available()', stdout => \$out, stderr => \$stderr);
		skip 'NUMA is not supported here', 1 if $rc == 0 && $out ne 't';
		$rc = $node->psql('postgres', q{
SELECT count(DISTINCT bufferid) FROM pg_buffercache_numa}, stdout => \$out, stderr => \$stderr);
		is("$rc $out", "0 $buffers", "$mode: pg_buffercache_numa") or diag($stderr);
	}
	unlike(slurp_file($node->logfile, $offset), qr/terminated by signal/, "$mode: nobody died of it");
	is(checksums($node, tables => [LOGGED]), $expected, "$mode: contents are right");

	# What is covered is not used, even if the media is said to be clean now.
	$node->stop;
	truncate pool_file($node), $size or die "could not extend the pool: $!";
	$node->append_conf('postgresql.conf', "pcache_inject.media = 'forgotten'");
	$node->start;
	is($node->safe_psql('postgres', 'SELECT retired, media FROM pg_pcache_pool'),
		'1|bad', "$mode: what the postmaster has covered stays retired");
	$offset = log_offset($node);
	$node->safe_psql('postgres', q{
CREATE TABLE scratch AS SELECT i, repeat('x', 1500) FROM generate_series(1, 25000) i;
SELECT count(*) FROM scratch;
DROP TABLE scratch});
	unlike(slurp_file($node->logfile, $offset), qr/terminated by signal/, "$mode: nobody stores there");
	$node->stop;

	# With other memory there, all slots are used.
	$node->adjust_conf('postgresql.conf', 'pcache_inject.media', undef);
	is((pcache($node, 'init', '--force', '--directory' => pool_dir($node)))[0], 0, "$mode: init --force");
	$node->start;
	is($node->safe_psql('postgres', 'SELECT retired FROM pg_pcache_pool'), '0', "$mode: a new pool");
	is(checksums($node, tables => [LOGGED]), $expected, "$mode: a new pool: contents are right");
	$node->stop;
}
done_testing();
