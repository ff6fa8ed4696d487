
# Copyright (c) 2026, the persistent-cache developers

# shared_buffers may change within the pool's capacity; as much as fits is kept.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

# 32MB are 4096 slots
my $node = new_node('main', size => '64MB');
my ($offset, $valid, $expected, $outcome, $usage);

$node->start;
load_data($node);
$expected = checksums($node);

# Up, to the whole capacity.
$usage = usage_after_warm_up();
$valid = valid_buffers($node);
resize('64MB');
$outcome = is_warm($node, $offset, $valid, 'up');
is($outcome->{slots}, 8192, 'up: number of slots');
is($node->safe_psql('postgres', 'SELECT count(DISTINCT bufferid) FROM pg_buffercache'),
	8192, 'up: the headers of all buffers are initialized');
is(checksums($node), $expected, 'up: contents are the same');
is(relation_reads($node), 0, 'up: no block is read again');

# The new slots are in use: fill them.
$node->safe_psql('postgres', q{
CREATE TABLE big (id int, v text);
INSERT INTO big SELECT i, repeat(md5(i::text), 60) FROM generate_series(1, 15000) i;
CHECKPOINT;
SELECT sum(pg_prewarm('big'))});
warm_up($node);
$valid = valid_buffers($node);
cmp_ok($valid, '>', 4096 + 100, 'more is cached than fitted before');
my $checksum_big = $node->safe_psql('postgres',
	'SELECT count(*), sum(hashtextextended(v, 0)) FROM big');

# Down: all slots below the new size have a page, and so many are kept (which
# ones, is for 285).
resize('16MB', sub {
	my @fitting = grep { $_ < 2048 } sealed_slots(pool_file($node));
	my $verdict = verify_json($node);

	cmp_ok(scalar @fitting, '>', 2000, 'down: slots that fit');
	$valid = @fitting;
	is($verdict->{rc}, 0, 'down: pg_pcache verify says warm');
	is($verdict->{slots}, 2048, 'down: pg_pcache verify knows the new size');
	is($verdict->{pages}{kept}, $valid, 'down: pg_pcache verify knows what fits');
	is( $verdict->{pages}{not_fitting},
		$verdict->{saved_pages} - $valid,
		'down: pg_pcache verify knows what does not');
});
$outcome = is_warm($node, $offset, $valid, 'down');
is($outcome->{kept}, $valid, 'down: as many as fit were kept');
is($outcome->{slots}, 2048, 'down: number of slots');
is(checksums($node), $expected, 'down: contents are the same');
is( $node->safe_psql('postgres',
		'SELECT count(*), sum(hashtextextended(v, 0)) FROM big'),
	$checksum_big, 'down: contents of the large table are the same');

# Up again: what the slots above held two starts ago must not come back.
$node->safe_psql('postgres', 'UPDATE big SET v = reverse(v)');
$checksum_big = $node->safe_psql('postgres',
	'SELECT count(*), sum(hashtextextended(v, 0)) FROM big');
$valid = valid_buffers($node);
resize('64MB');
$outcome = is_warm($node, $offset, $valid, 'up again');
cmp_ok($outcome->{kept}, '<=', 2048, 'up again: nothing from before came back');
is( $node->safe_psql('postgres',
		'SELECT count(*), sum(hashtextextended(v, 0)) FROM big'),
	$checksum_big, 'up again: contents of the large table are right');
is(checksums($node), $expected, 'up again: contents are the same');

# By one block.
$node->stop;
$node->adjust_conf('postgresql.conf', 'shared_buffers', '8191');
$node->start;
restart_warm($node, 'one block less than the capacity');

# Beyond the capacity, and no room: two blocks of 2 MB are needed.
$node->stop;
$node->adjust_conf('postgresql.conf', 'shared_buffers', '1TB');
start_fails(
	$node,
	qr/FATAL:  persistent cache pool ".*" is too small for "shared_buffers": it has room for 8192 blocks, 134217728 are needed\n.*HINT:  There is no room to make it larger: the file needs 1056\d{3} MB\.  Enlarge its file system \(mount -o remount,size=\.\.\.\), or decrease "shared_buffers"\./,
	'more than there is room for');
my ($rc, undef, $err) = pcache($node, 'verify');
is($rc, 1, 'more than there is room for: pg_pcache verify fails');
like($err, qr/is too small for "shared_buffers": it has room for 8192 blocks, 134217728 are needed\n.*hint: There is no room to make it larger: the file needs 1056\d{3} MB\.  Enlarge its file system \(mount -o remount,size=\.\.\.\), or decrease "shared_buffers"\./,
	'more than there is room for: pg_pcache verify says why');

# That cost nothing.
$node->adjust_conf('postgresql.conf', 'shared_buffers', '8192');
is(verify_json($node)->{rc}, 0, 'after the refusal: the pool is untouched');

# With room, the server makes the pool larger, and keeps what is in it.  How far
# the pages are moved depends on the size: by one, by many, and by more than there
# are in use.
$node->start;
warm_up($node);
$node->stop;
for my $case ([ '8193', 8193 ], [ '160MB', 20480 ], [ '1GB', 131072 ], [ '1GB', 262144, '2GB' ])
{
	my ($buffers, $capacity, $size) = @$case;
	my $name = "larger, $buffers" . (defined $size ? " and $size" : '');

	$node->start;
	$valid = valid_buffers($node);
	$node->stop;
	$node->adjust_conf('postgresql.conf', 'shared_buffers', $buffers);
	if (defined $size)
	{
		# nothing asks for that as long as shared_buffers fit
		$node->append_conf('postgresql.conf', "persistent_cache_size = $size");
		is(verify_json($node)->{rc}, 0, "$name: pg_pcache verify says warm");
		$node->start;
		is($node->safe_psql('postgres', 'SELECT 1'), 1, "$name: starts");
		is(status_json($node)->{capacity}, 131072, "$name: not larger than needed");
		$node->stop;
		$node->adjust_conf('postgresql.conf', 'shared_buffers', '131073');
	}
	my $verdict = verify_json($node);
	is($verdict->{rc}, 0, "$name: pg_pcache verify says warm");
	$offset = log_offset($node);
	$node->start;
	$outcome = is_warm($node, $offset, $valid, $name);
	is($outcome->{kept}, $verdict->{pages}{kept}, "$name: what pg_pcache verify said was kept");
	like(slurp_file($node->logfile, $offset), qr/LOG:  made persistent cache pool ".*" larger, from \d+ to $capacity blocks\n/,
		"$name: a LOG line tells");
	is(status_json($node)->{capacity}, $capacity, "$name: capacity");
	is(checksums($node), $expected, "$name: contents are the same");
	is(relation_reads($node), 0, "$name: no block is read again");
	is($node->safe_psql('postgres', 'SELECT count(*), sum(hashtextextended(v, 0)) FROM big'),
		$checksum_big, "$name: contents of the large table are the same");
	restart_warm($node, $name);
	$node->stop;
}

# After a crash in mode always.
$node->append_conf('postgresql.conf', "persistent_cache_size = 0\nshared_buffers = 131073");
set_mode($node, 'always');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache; UPDATE big SET v = reverse(v) WHERE id % 7 = 0; SELECT pg_pcache_seal()');
$checksum_big = $node->safe_psql('postgres', 'SELECT count(*), sum(hashtextextended(v, 0)) FROM big');
my $logged = checksums($node, tables => [LOGGED]);
$node->stop('immediate');
$node->append_conf('postgresql.conf', 'shared_buffers = 2200MB');
my $verdict = verify_json($node);
is($verdict->{rc}, 0, 'larger, after a crash: pg_pcache verify says warm');
$offset = log_offset($node);
$node->start;
$outcome = start_outcome($node, $offset);
is($outcome->{start}, 'warm', 'larger, after a crash: warm');
is($outcome->{kept}, $verdict->{pages}{kept}, 'larger, after a crash: what pg_pcache verify said was kept');
is($node->safe_psql('postgres', 'SELECT count(*), sum(hashtextextended(v, 0)) FROM big'),
	$checksum_big, 'larger, after a crash: contents are right');
is(checksums($node, tables => [LOGGED]), $logged, 'larger, after a crash: so are those of the others');

$node->stop;
done_testing();

# Stop, run code, start with another size.
sub resize
{
	my ($size, $code) = @_;

	$offset = log_offset($node);
	$node->stop;
	$node->adjust_conf('postgresql.conf', 'shared_buffers', $size);
	$code->() if defined $code;
	$node->start;
	return;
}

sub usage_after_warm_up
{
	warm_up($node);
	return usage_counts($node);
}
