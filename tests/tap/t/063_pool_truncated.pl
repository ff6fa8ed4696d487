
# Copyright (c) 2026, the persistent-cache developers

# A pool file that was cut off behind its descriptors costs the pages that are
# missing, and so do holes in it.  One that was cut off before, or overwritten with
# something else, makes the start cold.  All are made usable again.

use strict;
use warnings FATAL => 'all';

use JSON::PP ();
use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my ($offset, $expected, $verdict);

$node->start;
load_data($node);
$expected = checksums($node);

# A test: a store to any part of the pool has its memory, however full tmpfs gets.
sub is_allocated
{
	my ($name) = @_;
	my ($length, $blocks) = (stat pool_file($node))[ 7, 12 ];

	return cmp_ok($blocks * 512, '>=', $length, "$name: all of the pool is allocated");
}

my $size = -s pool_file($node);
my $blocks_offset = read_superblock(pool_file($node))->{blocks_offset};

for my $case (
	[ 'truncated to nothing', sub { truncate pool_file($node), 0 },
		'superblock', qr/^magic number is wrong$/ ],
	[ 'truncated within the superblock', sub { truncate pool_file($node), 100 },
		'superblock', qr/^magic number is wrong$/ ],
	[ 'truncated after the superblocks', sub { truncate pool_file($node), 8192 },
		'geometry', qr/^the pool file has 8192 bytes, / ],
	[ 'truncated within the descriptors', sub { truncate pool_file($node), 2097152 + 100 },
		'geometry', qr/^the pool file has 2097252 bytes, / ],
	[ 'truncated after the first descriptors', sub { truncate pool_file($node), $blocks_offset - 1 },
		'geometry', qr/^the pool file has \d+ bytes, / ],
	[ 'longer than it was', sub { truncate pool_file($node), $size + 8192 },
		'geometry', qr/^the pool file has \d+ bytes, / ],
	[ 'much longer than it was', sub { truncate pool_file($node), $size + 20 * 1024 * 1024 * 1024 },
		'geometry', qr/^the pool file has \d+ bytes, / ],
	[ 'filled with zeros', sub { truncate pool_file($node), 0; truncate pool_file($node), $size },
		'superblock', qr/^magic number is wrong$/ ],
	[ 'a text file', sub { truncate pool_file($node), 0; append_to_file(pool_file($node), 'x' x 10000) },
		'superblock', qr/^magic number is wrong$/ ])
{
	my ($name, $damage, $reason, $message) = @$case;

	warm_up($node);
	$node->stop;
	$damage->();
	$verdict = verify_json($node);
	is($verdict->{rc}, 2, "$name: pg_pcache verify says cold");
	is($verdict->{reason}, $reason, "$name: pg_pcache verify says why");
	$offset = log_offset($node);
	$node->start;
	is_cold($node, $offset, $message, $name);
	is_allocated($name);
	is(checksums($node), $expected, "$name: contents are right");
	restart_warm($node, "$name, then a clean stop");
	is(checksums($node), $expected, "$name, then a clean stop: contents are right");
}

# --- cut off behind the descriptors: what is left is kept
my $buffers = $node->safe_psql('postgres', "SELECT setting FROM pg_settings WHERE name = 'shared_buffers'");
for my $case (
	[ 'without blocks', 0 ],
	[ 'within the first block', 0, 100 ],
	[ 'in the middle', int($buffers / 2) ],
	[ 'in the middle of a block', int($buffers / 2), 4095 ],
	[ 'before the last block', $buffers - 2 ])
{
	my ($name, $slots, $more) = @$case;
	my $repair = $slots % 2 == 0 && $slots > 0;    # some by pg_pcache rebuild
	my $saved = warm_up($node);

	$node->stop;
	my $before = verify_json($node)->{pages}{kept};
	truncate pool_file($node), $blocks_offset + $slots * BLCKSZ + ($more // 0);
	$verdict = verify_json($node);
	my $left = $verdict->{pages}{kept};
	is($verdict->{rc}, $left > 0 ? 0 : 2, "cut off $name: pg_pcache verify says warm if anything is left");
	is($left + $verdict->{pages}{bad_block}, $before, "cut off $name: pg_pcache verify counts what is lost");
	cmp_ok($left, '<=', $slots, "cut off $name: it is lost");
	if ($repair && ($ENV{enable_injection_points} // '') eq 'yes')
	{
		local $ENV{PG_PCACHE_KILL_AT} = 'size-restored';
		is((pcache($node, 'rebuild'))[0], -9, "cut off $name: pg_pcache rebuild is killed");
		is(verify_json($node)->{pages}{kept}, $left, "cut off $name: the same is left");
		truncate pool_file($node), $blocks_offset + $slots * BLCKSZ + ($more // 0);
	}
	if ($repair)
	{
		my ($rc, $out, $err) = pcache($node, 'rebuild', '--json');
		is($rc, 0, "cut off $name: pg_pcache rebuild") or diag($err);
		is(JSON::PP::decode_json($out)->{cut_off_bytes}, $size - $blocks_offset - $slots * BLCKSZ - ($more // 0),
			"cut off $name: pg_pcache rebuild says how much");
		is(-s pool_file($node), $size, "cut off $name: the file is as long as it was");
	}
	$offset = log_offset($node);
	$node->start;
	my $outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "cut off $name: warm") or diag($outcome->{reason} // 'no word of it');
	is($outcome->{kept}, $left, "cut off $name: what is left is kept");
	is($outcome->{dropped}{'bad block'} // 0, $repair ? 0 : $before - $left,
		"cut off $name: the server counts what is lost");
	if (!$repair)
	{
		like(slurp_file($node->logfile, $offset), qr/WARNING: .* was cut off at \d+ of $size bytes/,
			"cut off $name: the log says so");
	}
	is(-s pool_file($node), $size, "cut off $name: the pool is whole again");
	is(checksums($node), $expected, "cut off $name: contents are right");
	restart_warm($node, "cut off $name, then a clean stop");
	is(checksums($node), $expected, "cut off $name, then a clean stop: contents are right");
}

# --- cut off, and to be formatted: killed once the file has its size again
SKIP:
{
	skip 'injection points are not supported by this build', 1
	  if ($ENV{enable_injection_points} // '') ne 'yes';
	for my $case (
		[ 'behind the descriptors', $blocks_offset + 100 * BLCKSZ ],
		[ 'within the descriptors', 2097152 + 100 * DESCRIPTOR_SIZE ])
	{
		my ($where, $left) = @$case;
		my $name = "cut off $where, killed while pg_pcache rebuild formats it";

		warm_up($node);
		$node->stop;
		truncate pool_file($node), $left;
		local $ENV{PG_PCACHE_KILL_AT} = 'reset-allocated';
		is((pcache($node, 'rebuild', '--reset'))[0], -9, "$name: it is");
		is(-s pool_file($node), $size, "$name: the file is as long as it was");
		is(verify_json($node)->{rc}, 2, "$name: pg_pcache verify says cold");
		$offset = log_offset($node);
		$node->start;
		is_cold($node, $offset, qr/^the pool is empty$/, $name);
		is(checksums($node), $expected, "$name: contents are right");
		restart_warm($node, "$name, then a clean stop");
	}
}

# --- holes: the file is as long as it should be, but not all of it is allocated
for my $case (
	# what a kill leaves that comes once the file has its size again (rule "a hole is not a page")
	[ 'killed while it got its size again', 1, 0 ],
	[ 'killed while it got its size again, pg_pcache rebuild', 1, 1 ],
	# somebody has cut it off and made it longer: zeros are no pages
	[ 'zeros for pages', 0, 0 ],
	[ 'zeros for pages, pg_pcache rebuild', 0, 1 ])
{
	my ($name, $freed, $repair) = @$case;
	my $first = 500;

	warm_up($node);
	$node->stop;
	my $before = verify_json($node)->{pages}{kept};
	my @gone = sealed_slots(pool_file($node), sub { $_[0]->{slot} >= $first });
	truncate pool_file($node), $blocks_offset + $first * BLCKSZ;
	if ($freed)
	{
		write_descriptor(pool_file($node), $_, seq => 1) for @gone;
	}
	truncate pool_file($node), $size;
	cmp_ok(scalar @gone, '>', 100, "holes, $name: pages are gone");
	$verdict = verify_json($node);
	is($verdict->{pages}{kept}, $before - @gone, "holes, $name: pg_pcache verify says what is left");
	is($verdict->{pages}{bad_block}, $freed ? 0 : scalar @gone, "holes, $name: pg_pcache verify counts what is lost");
	my $image = $node->data_dir . '.pcache-image';
	is(verb_json($node, 'save')->{pages_saved}, $before - @gone, "holes, $name: pg_pcache save leaves zeros out");
	unlink $image;
	if ($repair)
	{
		is((pcache($node, 'rebuild'))[0], 0, "holes, $name: exit status");
		is_allocated("holes, $name, before the start");
	}
	$offset = log_offset($node);
	$node->start;
	my $outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "holes, $name: warm") or diag($outcome->{reason} // 'no word of it');
	is($outcome->{kept}, $before - @gone, "holes, $name: what is left is kept");
	is($outcome->{dropped}{'bad block'} // 0, $freed || $repair ? 0 : scalar @gone, "holes, $name: the server counts what is lost");
	like($outcome->{log}, $freed ? qr/LOG: .* had holes/ : qr/WARNING: .* had holes/, "holes, $name: the log says so") if !$repair;
	is_allocated("holes, $name");
	is(checksums($node), $expected, "holes, $name: contents are right");
	restart_warm($node, "holes, $name, then a clean stop");
}

# --- killed while the pool was made larger: it is cold, but for the next time it is whole
{
	my $name = 'killed while it was made larger';

	warm_up($node);
	$node->stop;
	truncate pool_file($node), $size + 1024 * BLCKSZ;
	$node->append_conf('postgresql.conf', "shared_buffers = '" . ($buffers + 1024) * 8 . "kB'");
	$offset = log_offset($node);
	$node->start;
	is_cold($node, $offset, qr/^the pool file has \d+ bytes, its superblock says $size$/, $name);
	is_allocated($name);
	is(checksums($node), $expected, "$name: contents are right");
	restart_warm($node, "$name, then a clean stop");
}

$node->stop;
done_testing();
