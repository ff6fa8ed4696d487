
# Copyright (c) 2026, the persistent-cache developers

# The cases of 071_superblock_gates.pl through the server: the same reason,
# right data, and, most of all, warm again after the next clean stop.

use strict;
use warnings FATAL => 'all';

use PCache;
use PCache::GateCases;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', shared_buffers => '16MB');
my $pool = pool_file($node);

$node->start;
load_data($node, rows => 1000);
my $expected = checksums($node);
$node->stop;

my @cases = superblock_gate_cases(-s $pool);
my $saved = read_bytes($pool, 0, 2 * SUPERBLOCK_SIZE);

for my $case (@cases)
{
	my ($name, $changes, $reason, $message) = @$case;
	my ($offset, $outcome, $now);

	# one of each kind will do
	next if $name =~ / near | overflows | beyond | of nobody| of nothing|^timeline of|^redo/;

	patch_superblock($pool, %$changes);
	$offset = log_offset($node);
	if (!$node->start(fail_ok => 1))
	{
		fail("server, $name: it starts");
		diag(slurp_file($node->logfile, $offset));
		write_bytes($pool, 0, $saved);
		next;
	}
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'cold', "server, $name: cold");
	like($outcome->{reason} // '', $message, "server, $name: message");
	is(cached_table_pages($node), 0, "server, $name: no page of the tables is cached");
	is(checksums($node), $expected, "server, $name: contents are right");

	$now = valid_buffers($node);
	$offset = log_offset($node);
	$node->restart;
	$outcome = is_warm($node, $offset, $now, "server, $name, then a clean stop");
	$node->stop;

	# what failed here is not to fail the next case
	if (($outcome->{start} // '') ne 'warm')
	{
		pcache($node, 'init', '--force');
		$node->start;
		$node->stop;
	}
	$saved = read_bytes($pool, 0, 2 * SUPERBLOCK_SIZE);
}

done_testing();
