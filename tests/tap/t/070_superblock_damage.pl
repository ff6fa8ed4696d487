
# Copyright (c) 2026, the persistent-cache developers

# A damaged byte in each field of the superblock: in the first one, the copy
# is used and nothing is lost; in both, the start is cold and says why.
#
# The fields are those that pcache_layout.h declares, so that a new one is
# tested too.  pg_pcache verify asks the server's own gates, and so serves for
# the many cases; the server itself is started for some.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

my @fields = struct_fields('PCacheSuperblock');
my $last = $fields[-1];

is($last->{offset} + $last->{size}, SUPERBLOCK_SIZE, 'pcache_layout.h is understood');
cmp_ok(scalar @fields, '>=', 45, 'all fields are known');

# the layout that the frozen part promises
my %offset = map { $_->{name} => $_->{offset} } @fields;
is($offset{pool_uuid}, 16, 'offset of pool_uuid');
is($offset{byte_order}, 60, 'offset of byte_order');
is($offset{'saved.location'}, 152, 'offset of saved');
is($offset{crc}, 4084, 'offset of crc');
is(crc32c('123456789'), 0xE3069283, 'CRC-32C as specified');

# small: it is copied, and read often
my $node = new_node('main', shared_buffers => '16MB');
my $pool = pool_file($node);

$node->start;
load_data($node, rows => 3000);
my $expected = checksums($node);
my $valid = warm_up($node);
$node->stop;

my $sb = read_superblock($pool);
is($sb->{magic}, 'PGPCACHE', 'magic number at the head');
is($sb->{tail}, 'EHCACPGP', 'magic number at the tail');
is($sb->{state}, STATE_CLEAN, 'state after a clean stop');
is($sb->{crc}, crc32c(read_bytes($pool, 0, $offset{crc})), 'checksum');
ok(read_bytes($pool, 0, SUPERBLOCK_SIZE) eq read_bytes($pool, COPY_OFFSET, SUPERBLOCK_SIZE),
	'the copy equals the first superblock');
cmp_ok($sb->{saved_pages}, '>=', 0.999 * $valid, 'number of saved pages');

my $saved = read_bytes($pool, 0, 2 * SUPERBLOCK_SIZE);
my $all = verify_json($node)->{pages}{kept};
is($all, $sb->{saved_pages}, 'undamaged: all pages would be kept');

for my $field (@fields)
{
	my $name = $field->{name};
	my ($rc, $out, $err);

	# one byte in the first superblock
	damage_superblock($pool, $name, 0);
	($rc, $out, $err) = pcache($node, 'verify');
	is($rc, 0, "$name damaged in the first superblock: warm");
	like($out, qr/^next start: WARM, $all of $all pages$/m,
		"$name damaged in the first superblock: all pages kept");
	like($err,
		qr/using the copy of the superblock: the first one is damaged: (?:magic number is wrong|byte order does not match this machine|trailing magic number is wrong|checksum is wrong|format version \d+ is unknown)$/m,
		"$name damaged in the first superblock: the copy is used");

	# and in the copy
	damage_superblock($pool, $name, COPY_OFFSET);
	($rc, $out, $err) = pcache($node, 'verify');
	is($rc, 2, "$name damaged in both: cold");
	like($out, $name eq 'format_version'
		? qr/^next start: COLD: the pool has format version \d+, this server has \d+$/m
		: qr/^next start: COLD: (?:magic number|byte order|trailing magic number|checksum) /m,
		"$name damaged in both: reason");

	# in the copy only
	write_bytes($pool, 0, substr $saved, 0, SUPERBLOCK_SIZE);
	my $status = status_json($node);
	ok($status->{superblock_intact} && !$status->{superblock_copy_intact},
		"$name damaged in the copy: noticed");
	is($status->{state}, 'clean', "$name damaged in the copy: no matter");
	write_bytes($pool, 0, $saved);
}

# Now through the server.
for my $name (qw(magic format_version capacity state saved.location reserved crc tail))
{
	damage_superblock($pool, $name, 0);
	my $offset = log_offset($node);
	$node->start;
	my $outcome = is_warm($node, $offset, $valid, "server, $name damaged in the first");
	like($outcome->{log},
		qr/LOG:  using the copy of the superblock of persistent cache pool ".*"\n.*DETAIL:  The first superblock is damaged: .+\.\n/,
		"server, $name damaged in the first: it tells");
	is(checksums($node), $expected, "server, $name damaged in the first: contents are right");
	ok( read_bytes($pool, 0, SUPERBLOCK_SIZE) eq read_bytes($pool, COPY_OFFSET, SUPERBLOCK_SIZE),
		"server, $name damaged in the first: it is mended");
	$valid = warm_up($node);
	$node->stop;

	damage_superblock($pool, $name, 0, COPY_OFFSET);
	$offset = log_offset($node);
	$node->start;
	is_cold($node, $offset, $name eq 'format_version'
		? qr/^the pool has format version \d+, this server has 2$/
		: $name eq 'magic' ? qr/^magic number is wrong$/
		: $name eq 'tail' ? qr/^trailing magic number is wrong$/
		: qr/^checksum is wrong$/,
		"server, $name damaged in both");
	is(checksums($node), $expected, "server, $name damaged in both: contents are right");
	restart_warm($node, "server, $name damaged in both, then a clean stop");
	$valid = valid_buffers($node);
	$node->stop;
}

done_testing();
