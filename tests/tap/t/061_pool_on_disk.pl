
# Copyright (c) 2026, the persistent-cache developers

# A pool that is an ordinary file on disk works, with a warning; and if it is
# gone the server does not create one on a disk that it was not meant for.
# Also what happens to the record of the pool in the data directory.

use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('disk');
$node->init;
my $data = $node->data_dir;
my $directory = $node->basedir . '/pool directory';
my ($offset, $expected, $valid, $outcome, $verdict);

my ($rc, $out, $err) = pcache($node, 'init', '--directory' => $directory, '--size' => '32MB');
is($rc, 0, 'pg_pcache init on disk');
SKIP:
{
	my $kind = status_json($node)->{file_system};

	if ($kind ne 'file')
	{
		plan skip_all => "the build directory is on $kind, not on a disk";
	}
}
like($err, qr/warning: directory "\Q$directory\E" is on an ordinary file system\n/,
	'pg_pcache init warns');

$node->append_conf('postgresql.conf', "persistent_cache_directory = '$directory'");
$node->append_conf('postgresql.conf', q{
shared_buffers = 32MB
autovacuum = off
bgwriter_lru_maxpages = 0
persistent_cache_mode = planned_restart
persistent_cache_required = on});
$offset = log_offset($node);
$node->start;
like(slurp_file($node->logfile, $offset),
	qr/WARNING:  persistent cache pool ".*" is an ordinary file on disk\n.*DETAIL:  The kernel will write changed pages back to it while the server runs\./,
	'the server warns');
load_data($node);
$expected = checksums($node);

$offset = log_offset($node);
$valid = warm_up($node);
$node->restart;
$outcome = is_warm($node, $offset, $valid, 'pool on disk');
is(relation_reads($node), 0, 'pool on disk: no block is read again');
is(checksums($node), $expected, 'pool on disk: contents are the same');
pages_equal_disk($node, 'pool on disk');

# Crash, as everywhere.
$node->safe_psql('postgres', 'CHECKPOINT');
$offset = log_offset($node);
$node->stop('immediate');
$node->start;
is_cold($node, $offset, qr/^the server was not shut down cleanly$/, 'crash');
$node->safe_psql('postgres',
	'INSERT INTO t_unlogged SELECT i, md5(i::text) FROM generate_series(1, 5000) i');
is(checksums($node), $expected, 'crash: contents are right');
restart_warm($node, 'crash, then a clean stop');

# Cut off.
$node->stop;
truncate "$directory/pool", 3 * 1024 * 1024;
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/^the pool file has 3145728 bytes, /, 'truncated');
is(checksums($node), $expected, 'truncated: contents are right');
is((stat "$directory/pool")[12] * 512 >= (stat _)[7] - 4096 ? 'yes' : 'no',
	'yes', 'truncated: what was missing is allocated again');
restart_warm($node, 'truncated, then a clean stop');

# The record in the data directory: lost, damaged, or not readable.
for my $case (
	[ 'record lost', sub { unlink state_file($node) }, 'incarnation',
		qr/^the data directory has no record of a pool$/, qr/^/ ],
	[ 'record empty', sub { truncate state_file($node), 0 }, 'incarnation',
		qr/^the data directory has no record of a pool$/, qr/LOG:  file ".*pg_pcache\.state" is damaged/ ],
	[ 'record damaged', sub { damage_record('capacity = ', 1) }, 'incarnation',
		qr/^the data directory has no record of a pool$/, qr/LOG:  file ".*pg_pcache\.state" is damaged/ ],
	[ 'CRC of the record damaged', sub { damage_record('crc = ', 1) }, 'incarnation',
		qr/^the data directory has no record of a pool$/, qr/LOG:  file ".*pg_pcache\.state" is damaged/ ],
	[ 'record is too long', sub { append_to_file(state_file($node), 'x' x 5000) }, undef,
		qr/^/, qr/^/ ])
{
	my ($name, $damage, $reason, $message, $log) = @$case;

	warm_up($node);
	$node->stop;
	$damage->();
	$verdict = verify_json($node);
	$offset = log_offset($node);
	$node->start;
	if (defined $reason)
	{
		is($verdict->{rc}, 2, "$name: pg_pcache verify says cold");
		is($verdict->{reason}, $reason, "$name: pg_pcache verify says why");
		$outcome = is_cold($node, $offset, $message, $name);
		like($outcome->{log}, $log, "$name: the server tells");
	}
	else
	{
		is(start_outcome($node, $offset)->{start}, $verdict->{next_start},
			"$name: pg_pcache verify and the server agree");
	}
	is(checksums($node), $expected, "$name: contents are right");
	restart_warm($node, "$name, then a clean stop");
}

# Gone: first the pool, then the directory with it.  With the default of the
# setting, the record says where it was.
$node->stop;
$node->adjust_conf('postgresql.conf', 'persistent_cache_directory', "'pg_pcache'");
is(verify_json($node)->{rc}, 0, 'the record leads to the pool');
my $record = slurp_file(state_file($node));
truncate state_file($node), 20;
start_fails($node, qr/FATAL:  file ".*pg_pcache\.state" is damaged\n.*HINT:  Run "pg_pcache init --force" with option --directory/,
	'nothing but a damaged record leads to the pool');
is((pcache($node, 'verify'))[0], 1, 'nothing but a damaged record leads to the pool: pg_pcache verify says so');
write_state($node, $record);
for my $lose (sub { unlink "$directory/pool" }, sub { remove_tree($directory) })
{
	my $name = -e "$directory/pool" ? 'pool deleted' : 'directory deleted';

	$lose->();
	start_fails(
		$node,
		qr/FATAL:  persistent cache pool in "\Q$directory\E" is gone\n.*HINT:  Is the file system \(file\) with "\Q$directory\E" mounted\?  Otherwise run "pg_pcache init --force" to create the pool anew\./,
		$name);
	ok(!-e "$directory/pool", "$name: none was created");
	($rc, $out, $err) = pcache($node, 'verify');
	is($rc, 1, "$name: pg_pcache verify fails");
	like($err, qr/hint: Is the file system \(file\) with "\Q$directory\E" mounted\?/,
		"$name: pg_pcache verify gives the hint");
	($rc, $out, $err) = pcache($node, 'status');
	is($rc, 1, "$name: pg_pcache status fails");
	like($err, qr/hint: The pool was created on file, and is gone\./,
		"$name: pg_pcache status gives a hint");
}

# As the hint says.
is((pcache($node, 'init', '--force', '--directory' => $directory))[0],
	0, 'pg_pcache init --force');
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/^the pool is empty$/, 'created anew');
is(checksums($node), $expected, 'created anew: contents are right');
restart_warm($node, 'created anew, then a clean stop');
$node->stop;

# A pool in the data directory itself.
my $inside = PostgreSQL::Test::Cluster->new('inside');
$inside->init;
$inside->append_conf('postgresql.conf', 'shared_buffers = 16MB');
$inside->append_conf('postgresql.conf', 'autovacuum = off');
is((pcache($inside, 'init'))[0], 0, 'pg_pcache init in the data directory');
ok(-f $inside->data_dir . '/pg_pcache/pool', 'the pool is in the data directory');
set_mode($inside, 'planned_restart');
$inside->start;
load_data($inside, rows => 3000);
restart_warm($inside, 'pool in the data directory');
$inside->stop;

done_testing();

# Change a byte of the record, so many bytes after a text in it.
sub damage_record
{
	my ($text, $distance) = @_;
	my $record = slurp_file(state_file($node));
	my $at = index($record, $text) + length($text) + $distance - 1;
	my $byte = substr $record, $at, 1;

	write_bytes(state_file($node), $at, $byte eq '1' ? '2' : '1');
	return;
}
