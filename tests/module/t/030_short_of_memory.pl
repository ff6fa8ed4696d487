
# Copyright (c) 2026, the persistent-cache developers

# When memory is short, the kernel kills the process that has touched most of it.  To kill one
# gives back nothing of the pool, and has the server begin anew.  So the worker and the
# postmaster, which touch all of the pool and do not use it, must not be the first ones.

use strict;
use warnings FATAL => 'all';

use PCacheKilled qw(child);
use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

my $MB = 128;
my $node = module_node('main', mode => 'always', conf => "shared_buffers = ${MB}MB\n");
my $offset = 0;

# How much shared memory has a process touched, in MB?
sub touched
{
	my ($pid) = @_;
	my ($kb) = slurp_file("/proc/$pid/status") =~ /^RssShmem:\s+(\d+) kB/m;

	return int($kb / 1024);
}

# Neither the postmaster nor the worker has touched half of the pool.
sub nobody_has_it
{
	my ($name) = @_;

	$node->wait_for_log(qr/persistent cache: the pool has/, $offset);
	my %mb = (postmaster => touched($node->{_pid}), worker => touched(child($node->{_pid}, 'persistent cache')));
	cmp_ok($mb{$_}, '<', $MB / 2, "$name: the $_ has $mb{$_} MB") foreach sort keys %mb;
	return;
}

$node->start;
nobody_has_it('a new pool');

# all of the buffers have a page, which the next start looks at
$node->safe_psql('postgres', qq{
CREATE TABLE large (i int, filler text);
INSERT INTO large SELECT i, repeat('x', 1000) FROM generate_series(1, ${MB} * 1000) i;
CHECKPOINT});
kill_seen($node);
$offset = log_offset($node);
$node->start;
cmp_ok(start_outcome($node, $offset)->{kept}, '>', $MB * 128 * 0.7, 'a killed server: pages are kept');
nobody_has_it('a start after a kill');
is($node->safe_psql('postgres', 'SELECT count(*) FROM large'), $MB * 1000, '... and all rows are there');

$node->stop;
$offset = log_offset($node);
$node->start;
nobody_has_it('a start after a clean stop');

done_testing();
