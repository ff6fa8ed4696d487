
# Copyright (c) 2026, the persistent-cache developers

# A superblock with a right checksum and one wrong field: each gate refuses
# for its own reason, as pg_pcache verify tells; the
# server's side of it is 073_superblock_gates_server.pl.

use strict;
use warnings FATAL => 'all';

use PCache;
use PCache::GateCases;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', shared_buffers => '16MB');
my $pool = pool_file($node);

$node->start;
load_data($node, rows => 3000);
my $valid = warm_up($node);
$node->stop;

my @cases = superblock_gate_cases(-s $pool);

# through pg_pcache
my $saved = read_bytes($pool, 0, 2 * SUPERBLOCK_SIZE);
my $all = verify_json($node)->{pages}{kept};

cmp_ok($all, '>=', 0.999 * $valid, 'unchanged: all pages would be kept');
patch_superblock($pool);
ok(read_bytes($pool, 0, 2 * SUPERBLOCK_SIZE) eq $saved, 'the checksum is computed right');

for my $case (@cases)
{
	my ($name, $changes, $reason, $message) = @$case;

	patch_superblock($pool, %$changes);
	my $verdict = verify_json($node);
	is($verdict->{rc}, 2, "$name: cold");
	is($verdict->{reason}, $reason, "$name: reason");
	like($verdict->{detail}, $message, "$name: message");
	write_bytes($pool, 0, $saved);
}

# Fields that no gate depends on in this mode.
for my $changes (
	{ generation => 12345 }, { created_at => 1 }, { saved_at => -5 },
	{ boot_id => "\1" x 16 }, { mode => 2 }, { first_epoch => 77 },
	{ fs_kind => 1 })
{
	my ($name) = keys %$changes;

	patch_superblock($pool, %$changes);
	my $verdict = verify_json($node);
	is($verdict->{rc}, 0, "$name changed: still warm");
	is($verdict->{pages}{kept}, $all, "$name changed: all pages kept");
	write_bytes($pool, 0, $saved);
}

done_testing();
