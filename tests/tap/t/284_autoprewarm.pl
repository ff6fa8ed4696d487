
# Copyright (c) 2026, the persistent-cache developers

# pg_prewarm's autoprewarm beside the cache: after a warm start it reads nothing
# and displaces nothing, and when the pool was lost it brings the pages back.

use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "shared_preload_libraries = 'pg_prewarm'\npg_prewarm.autoprewarm = on\npg_prewarm.autoprewarm_interval = 0");
my $prewarmed = qr/autoprewarm successfully prewarmed (\d+) of (\d+) previously-loaded blocks/;

$node->start;
load_data($node);
my $expected = checksums($node);

# Blocks that autoprewarm's processes have read from files since the start, when
# it has loaded everything that it wants to: counters are new then, because all
# restarts of this test follow a reset.
sub autoprewarm_reads
{
	my ($offset) = @_;

	$node->wait_for_log($prewarmed, $offset);
	return $node->safe_psql('postgres', q{
SELECT coalesce(sum(reads), 0)::bigint FROM pg_stat_io WHERE object = 'relation' AND backend_type = 'background worker'});
}

# What autoprewarm said: blocks loaded, and blocks listed.
sub loaded
{
	my ($offset) = @_;
	return slurp_file($node->logfile, $offset) =~ $prewarmed;
}

for my $mode (qw(planned_restart always))
{
	set_mode($node, $mode);
	$node->restart;
	my $valid = warm_up($node);

	# warm: the pages are there before autoprewarm looks for them
	$node->safe_psql('postgres', q{SELECT pg_stat_reset_shared('io')});
	my $offset = log_offset($node);
	$node->restart;
	my $reads = autoprewarm_reads($offset);
	is_warm($node, $offset, $valid, "$mode, a clean stop");
	is($reads, 0, "$mode, a clean stop: autoprewarm reads nothing");
	my ($blocks, $listed) = loaded($offset);
	cmp_ok($listed, '>=', 0.99 * $valid, "$mode, a clean stop: $listed blocks were on its list");
	is(relation_reads($node), 0, "$mode, a clean stop: and nothing is read later");

	# lost: autoprewarm reads them again
	$valid = warm_up($node);
	$node->safe_psql('postgres', q{SELECT pg_stat_reset_shared('io')});
	$node->stop;
	remove_tree(pool_dir($node));
	$offset = log_offset($node);
	$node->start;
	$reads = autoprewarm_reads($offset);
	is(start_outcome($node, $offset)->{start}, 'cold', "$mode, the pool is lost: cold start");
	cmp_ok($reads, '>', 0, "$mode, the pool is lost: autoprewarm reads $reads times");
	($blocks, $listed) = loaded($offset);
	cmp_ok($blocks, '>=', 0.9 * $valid, "$mode, the pool is lost: it has loaded $blocks of $listed blocks");
	is(relation_reads($node), 0, "$mode, the pool is lost: and nothing is read later");

	# and what it has loaded is kept over the next restart
	restart_warm($node, "$mode, the pool was lost, restarted");
	is(checksums($node), $expected, "$mode: contents are right");
}

$node->stop;
done_testing();
