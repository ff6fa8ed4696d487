
# Copyright (c) 2026, the persistent-cache developers

# The superblock of the pool.  A damaged byte in any field of the first one costs
# nothing, as there is a copy; in both it makes the start cold.  Where the checksum is
# right and one field is not, each gate refuses for its own reason.  pg_pcache verify
# asks the gates of the server, which says the same.
#
# The fields are those that pcache_layout.h declares, so that a new one is tested too.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

my @fields = struct_fields('PCacheSuperblock');
my %offset = map { $_->{name} => $_->{offset} } @fields;
my $last = $fields[-1];

is($last->{offset} + $last->{size}, SUPERBLOCK_SIZE, 'pcache_layout.h is understood');
is(crc32c('123456789'), 0xE3069283, 'CRC-32C as specified');
# what is frozen
is_deeply([ @offset{qw(magic format_version pool_uuid system_identifier pg_major byte_order crc)} ],
	[ 0, 8, 16, 32, 56, 60, 4084 ], 'offsets that each format has');

# small: it is copied, and read often
my $node = new_node('main', shared_buffers => '16MB');
my $pool = pool_file($node);
my $major = major();

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

sub is_mended
{
	my ($name) = @_;

	ok(read_bytes($pool, 0, SUPERBLOCK_SIZE) eq read_bytes($pool, COPY_OFFSET, SUPERBLOCK_SIZE), "$name: it is mended");
	return;
}

# A test: the server starts cold with this message, with the right contents, and is warm
# after the next clean stop.
sub server_is_cold
{
	my ($name, $message) = @_;
	my $offset = log_offset($node);

	$node->start;
	is_cold($node, $offset, $message, "server, $name");
	is(checksums($node), $expected, "server, $name: contents are right");
	restart_warm($node, "server, $name, then a clean stop");
	$node->stop;
	$saved = read_bytes($pool, 0, 2 * SUPERBLOCK_SIZE);
	return;
}

# ---------------------------------------------------------------- damaged
for my $field (@fields)
{
	my $name = $field->{name};
	my ($rc, $out, $err);

	damage_superblock($pool, $name, 0);
	($rc, $out, $err) = pcache($node, 'verify');
	is($rc, 0, "$name damaged in the first superblock: warm");
	like($out, qr/^next start: WARM, $all of $all pages$/m, "$name damaged in the first superblock: all pages kept");
	like($err, qr/using the copy of the superblock: the first one is damaged: /, "$name damaged in the first superblock: the copy is used");

	damage_superblock($pool, $name, COPY_OFFSET);
	($rc, $out, $err) = pcache($node, 'verify');
	is($rc, 2, "$name damaged in both: cold");
	like($out, $name eq 'format_version'
		? qr/^next start: COLD: the pool has format version \d+, this server has \d+$/m
		: qr/^next start: COLD: (?:magic number|byte order|trailing magic number|checksum) /m,
		"$name damaged in both: reason");

	write_bytes($pool, 0, substr $saved, 0, SUPERBLOCK_SIZE);
	my $status = status_json($node);
	ok($status->{superblock_intact} && !$status->{superblock_copy_intact}, "$name damaged in the copy: noticed");
	is($status->{state}, 'clean', "$name damaged in the copy: no matter");
	write_bytes($pool, 0, $saved);
}

for my $case ([ 'magic', qr/^magic number is wrong$/ ], [ 'capacity', qr/^checksum is wrong$/ ], [ 'tail', qr/^trailing magic number is wrong$/ ])
{
	my ($name, $message) = @$case;
	my $offset = log_offset($node);

	damage_superblock($pool, $name, 0);
	$node->start;
	is_warm($node, $offset, $all, "server, $name damaged in the first");
	is(checksums($node), $expected, "server, $name damaged in the first: contents are right");
	is_mended("server, $name damaged in the first");
	$node->stop;

	damage_superblock($pool, $name, 0, COPY_OFFSET);
	server_is_cold("$name damaged in both", $message);
	$all = verify_json($node)->{pages}{kept};
}

# ---------------------------------------------------------------- intact, and wrong
my $plus_one = sub { $_[0] + 1 };
my $file_size = -s $pool;

patch_superblock($pool);
ok(read_bytes($pool, 0, 2 * SUPERBLOCK_SIZE) eq $saved, 'the checksum is computed right');

# Name, changes, reason and message; the server itself is started if there is a 1.
for my $case (
	[ 'format version', { format_version => 2 }, 'version', qr/^the pool has format version 2, this server has 3$/, 1 ],
	[ 'major version', { pg_major => $major - 1 }, 'version', qr/^the pool belongs to PostgreSQL @{[ $major - 1 ]} with catalog version \d+$/, 1 ],
	[ 'pg_control version', { pg_control_version => 12 }, 'version', qr/^the pool belongs to PostgreSQL $major with catalog version \d+$/ ],
	[ 'catalog version', { catalog_version => 202401011 }, 'version', qr/^the pool belongs to PostgreSQL $major with catalog version 202401011$/ ],
	[ 'byte order', { byte_order => 0x04030201 }, 'superblock', qr/^byte order does not match this machine$/ ],
	[ 'block size', { block_size => 4096 }, 'geometry', qr/4096/, 1 ],
	[ 'segment size', { blocks_per_segment => 1024 }, 'geometry', qr/1024/ ],
	[ 'descriptor size', { descriptor_size => 128 }, 'geometry', qr/^the pool has / ],
	[ 'superblock size', { superblock_size => 8192 }, 'geometry', qr/^the pool has / ],
	[ 'capacity of nothing', { capacity => 0 }, 'geometry', qr/ bytes/ ],
	[ 'twice the capacity', { capacity => sub { 2 * $_[0] } }, 'geometry', qr/ bytes/, 1 ],
	[ 'offset of the descriptors', { descriptors_offset => 4096 }, 'geometry', qr/ bytes/ ],
	[ 'offset of the blocks', { blocks_offset => sub { $_[0] + 8192 } }, 'geometry', qr/ bytes/ ],
	[ 'offset of the blocks beyond the file', { blocks_offset => sub { $_[0] + 2**40 } }, 'geometry', qr/ bytes/ ],
	[ 'size', { pool_size => sub { $_[0] - 8192 } }, 'geometry', qr/^the pool file has $file_size bytes, its superblock says @{[ $file_size - 8192 ]}/ ],
	[ 'more slots used than there are', { slots_used => sub { $_[0] + 100000 } }, 'geometry', qr/ bytes/, 1 ],
	[ 'system identifier', { system_identifier => $plus_one }, 'system_identifier', qr/^the pool belongs to the cluster with system identifier \d+$/, 1 ],
	[ 'state empty', { state => STATE_EMPTY }, 'new', qr/^the pool is empty$/, 1 ],
	[ 'state dirty', { state => STATE_DIRTY }, 'dirty', qr/^the server was not shut down cleanly$/ ],
	[ 'unknown state', { state => 99 }, 'superblock', qr/^the state of the pool is 99, which is unknown$/, 1 ],
	[ 'control state', { control_state => 2 }, 'control_state', qr/^the cluster was started and stopped without the pool$/ ],
	[ 'timeline', { 'saved.timeline' => $plus_one }, 'timeline', qr/^the pool was saved on timeline 2, the cluster is on timeline 1$/ ],
	[ 'checkpoint', { 'saved.location' => sub { $_[0] - 8 } }, 'checkpoint', qr/^the pool was saved at checkpoint \S+, the last checkpoint of the cluster is at \S+$/, 1 ],
	[ 'redo point', { 'saved.redo' => sub { $_[0] - 8 } }, 'checkpoint', qr/^the pool was saved at checkpoint / ],
	[ 'minimum recovery point', { min_recovery_point => 0x1000028 }, 'control_state', qr/^the cluster was started and stopped without the pool$/ ],
	[ 'timeline of the minimum recovery point', { min_recovery_point_timeline => 1 }, 'control_state', qr/^the cluster was started and stopped without the pool$/ ],
	[ 'data checksums', { data_checksum_version => sub { $_[0] ? 0 : 1 } }, 'data_checksums', qr/^data checksums were switched on or off$/ ],
	[ 'checksum of pg_control', { 'saved.control_crc' => sub { $_[0] ^ 1 } }, 'control_file', qr/^the control file was changed since the pool was saved$/, 1 ])
{
	my ($name, $changes, $reason, $message, $server) = @$case;

	patch_superblock($pool, %$changes);
	my $verdict = verify_json($node);
	is($verdict->{rc}, 2, "$name: cold");
	is($verdict->{reason}, $reason, "$name: reason");
	like($verdict->{detail}, $message, "$name: message");
	if ($server) { server_is_cold($name, $message) }
	else { write_bytes($pool, 0, $saved) }
}

# Fields that no gate depends on after a clean stop.
$all = verify_json($node)->{pages}{kept};
for my $changes ({ generation => 12345 }, { created_at => 1 }, { saved_at => -5 }, { boot_id => "\1" x 16 }, { mode => 2 })
{
	my ($name) = keys %$changes;

	patch_superblock($pool, %$changes);
	is(verify_json($node)->{pages}{kept}, $all, "$name changed: all pages kept");
	write_bytes($pool, 0, $saved);
}

done_testing();
