
# Copyright (c) 2026, the persistent-cache developers

# Mode always on persistent memory, on a platform that saves the CPU caches when power is lost:
# nothing is listed, and a start judges the headers that the dead server left.

use strict;
use warnings FATAL => 'all';

use PCacheKilled;
use PCacheModule;
use PCache::PowerCut;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main', mode => 'always', init => { extra => ['--data-checksums'] },
	conf => "fsync = on\nautovacuum = off\npcache.recovery = short\n");
my $dir = pool_root() . '/main';
my $eadr = shim('eadr');
my $boots = 0;

# As sysfs has it: a disk of a namespace, and what the platform says.
my $region = PostgreSQL::Test::Utils::tempdir() . '/ndbus0/region0';
my $disk = "$region/namespace0.0/block/pmem0";
system_or_bail('mkdir', '-p', $disk);
append_to_file("$region/persistence_domain", "cpu_cache\n");
append_to_file("$disk/size", "2097152\n");
append_to_file("$disk/badblocks", '');
%ENV = (%ENV, powercut_environment($dir, seed_random()), EADR_DISK => $disk);
my $unknown = $ENV{LD_PRELOAD};
$ENV{LD_PRELOAD} .= ":$eadr";

# All that was stored is there, and the host has another boot id.
sub lose_power
{
	$boots++;
	unlink "$dir.image.boot";
	append_to_file("$dir.image.boot", sprintf("00000000-0000-4000-8000-%012d\n", $boots));
	return;
}

# Pages that are dirty, and some that are written, all younger than the redo point.
sub work
{
	warm_pages($node);
	$node->safe_psql('postgres', 'CHECKPOINT');
	change_tables($node);
	return;
}

$node->start;
unlike(slurp_file($node->logfile), qr/a start after a loss of power will be cold/, 'the log does not say that it will be cold');
like((run_command([ 'pg_pcache', 'status', '-D', $node->data_dir ]))[0], qr/^after a loss of power: +headers$/m, 'status says what a start will go by');
load_tables($node);
work();
pause_for_sighting();
is(scalar(grep { $_->{sum} != 0 } pool_entries(pool_file($node))), 0, 'nothing is listed');

# Processes only: what is younger stays.
kill_seen($node);
cmp_ok(shortened(start_warm($node, 'killed', at_least => 300))->{young}, '>', 0, 'killed: pages younger than the redo point stay');

for my $k (1 .. 2)
{
	work();
	kill_seen($node);
	lose_power();
	my $outcome = start_warm($node, "power lost, $k", at_least => 300);
	my $short = shortened($outcome);

	like($outcome->{log}, qr/persistent cache: power was lost; what was there was checked in/, "power lost, $k: the log says so");
	cmp_ok($outcome->{dropped}{'first of an index'} // 0, '>', 0, "power lost, $k: the first pages of indexes do not stay");
	cmp_ok($outcome->{dropped}{dirty} // 0, '>', 0, "power lost, $k: dirty pages do not stay");
	is($short->{$_}, 0, "power lost, $k: no $_") for qw(young skipped);
}

# The platform does not say any more that it saves them.
work();
kill_seen($node);
lose_power();
{
	local $ENV{LD_PRELOAD} = $unknown;

	cold_start($node, qr/^the host was restarted, and the platform does not say any more that it saves the CPU caches/, 'it does not say so any more');
	$node->stop;
}

done_testing();
