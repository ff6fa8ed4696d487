
# Copyright (c) 2026, the persistent-cache developers

# After a power loss the pool is what had reached the media (tests/powercut),
# and the host has booted again.  Warm if the DIMMs were shut down safely.

use strict;
use warnings FATAL => 'all';

use PCache;
use PCache::PowerCut;
use PostgreSQL::Test::Utils;
use Test::More;

need_powercut();

my $seed = seed_random();

my $dir = pool_root() . '/main';
%ENV = (%ENV, powercut_environment($dir, $seed));
my $node = new_node('main',
	mode => 'always',
	conf => powercut_conf() . qq{
persistent_cache_on_media_unknown = cold
autovacuum = off});

$node->start;
load_data($node);
$node->safe_psql('postgres', 'CHECKPOINT');
my $expected = checksums($node, tables => [LOGGED]);
my $valid = permanent_buffers($node);

for my $how ('kill -9 of all', 'stop immediate')
{
	wait_for_seals();
	$how =~ /kill/ ? kill_all($node) : $node->stop('immediate');
	my $outcome = start_after_power_loss();
	is($outcome->{start}, 'warm', "power loss after $how: warm")
	  or diag($outcome->{reason});
	cmp_ok($outcome->{kept} // 0, '>=', 0.95 * $valid, "power loss after $how: kept of $valid: $outcome->{kept}");
	is(checksums($node, tables => [LOGGED]), $expected, "power loss after $how: contents");
	$valid = permanent_buffers($node);
}

for my $case ([ 'unsafe shutdown', 'dimm-a:8,dimm-b:3', qr/were not shut down safely/ ],
	[ 'other DIMM', 'dimm-a:8,dimm-c:3', qr/were not shut down safely/ ],
	[ 'unknown', '', qr/it is not known whether the platform saves what was flushed to the DIMMs/ ])
{
	my ($name, $dimms, $reason) = @$case;

	wait_for_seals();
	kill_all($node);
	$node->append_conf('postgresql.conf', "pcache_inject.dimms = '$dimms'");
	my $outcome = start_after_power_loss();
	is($outcome->{start}, 'cold', "$name: cold");
	like($outcome->{reason}, $reason, "$name: the reason");
	is(checksums($node, tables => [LOGGED]), $expected, "$name: contents");
}

# planned_restart: each clean stop makes durable what was changed since the one
# before it.
$node->append_conf('postgresql.conf', "pcache_inject.dimms = 'dimm-a:8,dimm-c:3'");
$node->stop;
set_mode($node, 'planned_restart');
$node->start;
for my $stop (1 .. 3)
{
	$node->safe_psql('postgres', "UPDATE t_heap SET grp = grp + 1 WHERE id % 7 = $stop");
	$expected = checksums($node, tables => [LOGGED]);
	$valid = permanent_buffers($node);
	$node->stop;
	my $outcome = start_after_power_loss();
	is($outcome->{start}, 'warm', "power loss after clean stop $stop: warm")
	  or diag($outcome->{reason});
	cmp_ok($outcome->{kept} // 0, '>=', 0.95 * $valid, "power loss after clean stop $stop: kept");
	is(checksums($node, tables => [LOGGED]), $expected, "power loss after clean stop $stop: contents");
}
$node->stop;
done_testing();

sub start_after_power_loss
{
	my $offset;

	cut_power($dir, $seed++);
	$offset = log_offset($node);
	$node->start;
	return start_outcome($node, $offset);
}
