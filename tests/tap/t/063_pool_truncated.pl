
# Copyright (c) 2026, the persistent-cache developers

# A pool file that was cut off, or overwritten with something else: cold, and
# made usable again.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my ($offset, $expected, $verdict);

$node->start;
load_data($node);
$expected = checksums($node);

my $size = -s pool_file($node);

for my $case (
	[ 'truncated to nothing', sub { truncate pool_file($node), 0 },
		'superblock', qr/^magic number is wrong$/ ],
	[ 'truncated within the superblock', sub { truncate pool_file($node), 100 },
		'superblock', qr/^magic number is wrong$/ ],
	[ 'truncated after the superblocks', sub { truncate pool_file($node), 8192 },
		'geometry', qr/^the pool file has 8192 bytes, / ],
	[ 'truncated within the descriptors', sub { truncate pool_file($node), 2097152 + 100 },
		'geometry', qr/^the pool file has 2097252 bytes, / ],
	[ 'last page cut off', sub { truncate pool_file($node), $size - 8192 },
		'geometry', qr/^the pool file has \d+ bytes, / ],
	[ 'longer than it was', sub { truncate pool_file($node), $size + 8192 },
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
	is(checksums($node), $expected, "$name: contents are right");
	restart_warm($node, "$name, then a clean stop");
	is(checksums($node), $expected, "$name, then a clean stop: contents are right");
}

$node->stop;
done_testing();
