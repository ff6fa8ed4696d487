
# Copyright (c) 2026, the persistent-cache developers

# After a power loss the pool is what had reached the media (tests/powercut),
# and the host has booted again.  Warm if the DIMMs were shut down safely.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

my $shim = $ENV{PCACHE_POWERCUT} // '';
plan skip_all => 'no power cut shim' if !-e "$shim/libpowercut.so";
plan skip_all => 'no injection points' if ($ENV{enable_injection_points} // '') ne 'yes';

my $seed = $ENV{PCACHE_SEED} // int(rand(2**31));
note("seed: $seed (set PCACHE_SEED to repeat)");

my $dir = pool_root() . '/main';
mkdir $dir, 0700;
@ENV{qw(LD_PRELOAD PMEM_IS_PMEM_FORCE POWERCUT_DIR POWERCUT_IMAGE POWERCUT_SEED)} =
  ("$shim/libpowercut.so", 1, $dir, "$dir.image", $seed);
my $node = new_node('main',
	mode => 'always',
	conf => qq{
shared_preload_libraries = 'pcache_inject'
pcache_inject.media = 'clean'
pcache_inject.dimms = 'dimm-a:7,dimm-b:3'
persistent_cache_on_media_unknown = cold
autovacuum = off});
my @logged = qw(t_heap t_toast t_kinds);

$node->start;
load_data($node);
$node->safe_psql('postgres', 'CHECKPOINT');
my $expected = checksums($node, tables => \@logged);
my $valid = permanent_buffers($node);

for my $how ('kill -9 of all', 'stop immediate')
{
	wait_for_seals();
	$how =~ /kill/ ? kill_all($node) : $node->stop('immediate');
	my $outcome = start_after_power_loss();
	is($outcome->{start}, 'warm', "power loss after $how: warm")
	  or diag($outcome->{reason});
	cmp_ok($outcome->{kept} // 0, '>=', 0.95 * $valid, "power loss after $how: kept of $valid: $outcome->{kept}");
	is(checksums($node, tables => \@logged), $expected, "power loss after $how: contents");
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
	is(checksums($node, tables => \@logged), $expected, "$name: contents");
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
	$expected = checksums($node, tables => \@logged);
	$valid = permanent_buffers($node);
	$node->stop;
	my $outcome = start_after_power_loss();
	is($outcome->{start}, 'warm', "power loss after clean stop $stop: warm")
	  or diag($outcome->{reason});
	cmp_ok($outcome->{kept} // 0, '>=', 0.95 * $valid, "power loss after clean stop $stop: kept");
	is(checksums($node, tables => \@logged), $expected, "power loss after clean stop $stop: contents");
}
$node->stop;
done_testing();

sub start_after_power_loss
{
	my $offset;

	system_or_bail("$shim/powercut", "$dir/pool", "$dir.image", $seed++);
	$offset = log_offset($node);
	$node->start;
	return start_outcome($node, $offset);
}
