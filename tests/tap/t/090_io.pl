
# Copyright (c) 2026, the persistent-cache developers

# Warm restarts with each io_method, and with direct I/O.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');

$node->start;
load_data($node);

my $expected = checksums($node);
$node->stop;

for my $method (qw(sync worker io_uring))
{
	SKIP:
	{
		my $offset = log_offset($node);
		my ($out, $err) = run_command(
			[ 'postgres', '-D' => $node->data_dir, '-C' => 'io_method', '-c' => "io_method=$method" ]);

		skip "this build has no io_method $method", 1 if $out ne $method;
		$node->append_conf('postgresql.conf', "io_method = $method");
		if (!$node->start(fail_ok => 1))
		{
			my $log = slurp_file($node->logfile, $offset);

			$node->adjust_conf('postgresql.conf', 'io_method', undef);
			skip 'the kernel does not allow io_uring', 1
			  if $method eq 'io_uring' && $log =~ /could not setup io_uring queue/;
			fail("$method: the server starts");
			diag($log);
			last SKIP;
		}
		works($node, $method);
		$node->adjust_conf('postgresql.conf', 'io_method', undef);
	}
}

for my $setting ('io_combine_limit = 1', 'io_max_concurrency = 1', 'wal_level = minimal', 'debug_io_direct = data')
{
	SKIP:
	{
		my ($name) = $setting =~ /^(\w+)/;
		my $offset = log_offset($node);

		$node->append_conf('postgresql.conf', $setting);
		if (!$node->start(fail_ok => 1))
		{
			$node->adjust_conf('postgresql.conf', $name, undef);
			skip "not supported here: $setting", 1
			  if $name eq 'debug_io_direct'
			  && slurp_file($node->logfile, $offset) =~ /Invalid argument|not supported/;
			fail("$setting: the server starts");
			last SKIP;
		}
		works($node, $setting);
		$node->adjust_conf('postgresql.conf', $name, undef);
	}
}

done_testing();

# The server runs: change something, restart it, and leave it stopped.
sub works
{
	my ($who, $name) = @_;
	my ($offset, $valid, $contents);

	warm_up($who);
	$who->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 20 = 0');
	$contents = checksums($who);
	isnt($contents, $expected, "$name: contents have changed");
	$expected = $contents;
	$valid = warm_up($who);
	$offset = log_offset($who);
	$who->restart;
	is_warm($who, $offset, $valid, $name);
	is(relation_reads($who), 0, "$name: no block is read again");
	is(checksums($who), $expected, "$name: contents are the same");
	pages_equal_disk($who, $name);
	$who->stop;
	return;
}
