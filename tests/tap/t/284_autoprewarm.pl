
# Copyright (c) 2026, the persistent-cache developers

# pg_prewarm's autoprewarm beside the cache: after a warm start it reads nothing
# and displaces nothing, and when the pool was lost it brings the pages back.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', libraries => 'pg_prewarm,pg_pcache',
	conf => "pg_prewarm.autoprewarm = on\npg_prewarm.autoprewarm_interval = 0");
my $prewarmed = qr/autoprewarm successfully prewarmed (\d+) of (\d+) previously-loaded blocks/;
$node->start;
load_data($node);
my $expected = checksums($node);
my ($valid, $offset, $reads);

# Blocks that autoprewarm's processes have read from files since the start, when
# it has loaded everything that it wants to: counters are new then, because all
# restarts of this test follow a reset.  And what it said: blocks loaded, and listed.
sub autoprewarm_reads
{
	$node->wait_for_log($prewarmed, $offset);
	return ($node->safe_psql('postgres', q{
SELECT coalesce(sum(reads), 0)::bigint FROM pg_stat_io WHERE object = 'relation' AND backend_type = 'background worker'}),
		slurp_file($node->logfile, $offset) =~ $prewarmed);
}

# warm: the pages are there before autoprewarm looks for them
my ($blocks, $listed);
$valid = warm_up($node);
$node->safe_psql('postgres', q{SELECT pg_stat_reset_shared('io')});
$offset = log_offset($node);
$node->restart;
($reads, $blocks, $listed) = autoprewarm_reads();
is_warm($node, $offset, $valid, 'a clean stop');
is($reads, 0, 'a clean stop: autoprewarm reads nothing');
cmp_ok($listed, '>=', 0.99 * $valid, "a clean stop: $listed blocks were on its list");
is(relation_reads($node), 0, 'a clean stop: and nothing is read later');

# lost: autoprewarm reads them again
$valid = warm_up($node);
$node->safe_psql('postgres', q{SELECT pg_stat_reset_shared('io')});
$node->stop;
unlink pool_file($node) or die;
$offset = log_offset($node);
$node->start;
($reads, $blocks, $listed) = autoprewarm_reads();
is(start_outcome($node, $offset)->{start}, 'cold', 'the pool is lost: cold start');
cmp_ok($reads, '>', 0, "the pool is lost: autoprewarm reads $reads times");
cmp_ok($blocks, '>=', 0.9 * $valid, "the pool is lost: it has loaded $blocks of $listed blocks");
is(relation_reads($node), 0, 'the pool is lost: and nothing is read later');

# and what it has loaded is kept over the next restart
restart_warm($node, 'the pool was lost, restarted');
is(checksums($node), $expected, 'contents are right');
$node->stop;

done_testing();
