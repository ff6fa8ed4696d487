
# Copyright (c) 2026, the persistent-cache developers

# What pg_pcache check, pg_pcache_next_start() and the log of a shutdown foretell
# is how the server then starts, or that it does not.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = pool_root();
my $disk = PostgreSQL::Test::Utils::tempdir();
chmod 0700, $disk;
my $other = new_node('other', setting => 0);
$other->start;
my $node = new_node('main', shared_buffers => '16MB', setting => 0, init => { allows_streaming => 1 });
my $data = $node->data_dir;
my $pool = pool_file($node);
my $configuration = slurp_file("$data/postgresql.conf");
my ($free_mb) = (run_command([ 'df', '-Pm', $root ]))[0] =~ /^\S+\s+\d+\s+\d+\s+(\d+)\s+\d+%/m;
my $too_many = 2 * $free_mb * 1024 / 8;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
load_data($node, rows => 500);

sub set
{
	my ($settings) = @_;
	open my $fh, '>', "$data/postgresql.conf" or die $!;
	print $fh "$configuration\n$settings\n";
	close $fh;
	return;
}

# Name; settings, or code that changes something and returns code that puts it
# back; exit code of check; reason in SQL; detail
my @cases = (
	[ 'as it is', '', 0, 'warm' ],
	[ 'smaller shared_buffers', 'shared_buffers = 8MB', 0, 'warm' ],
	[ 'larger shared_buffers, with room', 'shared_buffers = 64MB', 0, 'warm' ],
	[ 'larger shared_buffers, without room', "shared_buffers = $too_many", 1, 'refused',
		qr/is too small for "shared_buffers": it has room for 8192 blocks, $too_many are needed/ ],
	[ 'mode off', "persistent_cache_mode = 'off'", 2, 'off', qr/persistent_cache_mode is off/ ],
	[ 'after a run without the pool', '', 2, 'incarnation', qr/the cluster was run without the pool/ ],
	[ 'another place in memory', "persistent_cache_directory = '$root/another'", 2, 'new',
		qr/there is no pool yet, and the server will create it/ ],
	[ 'the place by record', '', 0, 'warm' ],
	[ 'the former place', "persistent_cache_directory = '" . pool_dir($node) . "'", 2, 'incarnation',
		qr/the data directory was last used with another pool/ ],
	[ 'a place on disk', "persistent_cache_directory = '$disk/x'", 1, 'refused',
		qr/there is no persistent cache pool in directory "\Q$disk\E\/x", and "\Q$disk\E" is on an ordinary file system/ ],
	[ 'inside the data directory, by its own name', "persistent_cache_directory = '$data/pg_pcache'", 1, 'refused',
		qr/persistent cache directory ".*" is inside the data directory/ ],
	[ "another server's place", "persistent_cache_directory = '" . pool_dir($other) . "'", 1, 'refused',
		qr/is locked by another process/ ],
	[ 'a wrong value', "shared_buffers = many", 1, 'refused', qr/configuration file ".*" contains errors/ ],
	[ 'others may change the directory', sub { chmod 0770, pool_dir($node); return sub { chmod 0700, pool_dir($node) } }, 1, 'refused',
		qr/has invalid permissions/ ],
	[ 'point-in-time recovery', sub {
			set("restore_command = 'false'");
			append_to_file("$data/recovery.signal", '');
			# the server removes it when recovery has ended
			return sub { $node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die };
		}, 2, 'recovery target', qr/point-in-time recovery was requested/ ],
	[ 'the pool is deleted', sub { unlink $pool; return }, 2, 'new',
		qr/the pool was lost with its tmpfs file system, and will be created again/ ],
	[ 'the pool is deleted, and there is no room', sub { unlink $pool; set("shared_buffers = $too_many"); return }, 1, 'refused',
		qr/not enough space in ".*" for the persistent cache pool/ ]);

for my $case (@cases)
{
	my ($name, $change, $expected, $reason, $detail) = @$case;
	my ($undo, $offset, $log);

	warm_up($node) if $name ne 'after a run without the pool';
	if (ref $change) { set(''); $undo = $change->() }
	else { set($change) }
	my ($rc, $out, $err) = pcache($node, 'check');
	my $sql = $node->safe_psql('postgres', 'SELECT warm, reason FROM pg_pcache_next_start()');
	my $sql_detail = $node->safe_psql('postgres', 'SELECT detail FROM pg_pcache_next_start()');

	is($rc, $expected, "$name: exit code of pg_pcache check") or diag("$out$err");
	is($sql, ($expected == 0 ? 't' : 'f') . "|$reason", "$name: pg_pcache_next_start()");
	if (defined $detail)
	{
		like($out . $err, $detail, "$name: pg_pcache check says why");
		like($sql_detail, $detail, "$name: pg_pcache_next_start() says why");
	}
	$offset = log_offset($node);
	$node->stop;
	$log = slurp_file($node->logfile, $offset);
	# who runs without the cache has nothing to say of it
	like($log, $expected == 0 ? qr/LOG:  persistent cache: saved/ : $expected == 1 ? qr/LOG:  persistent cache: the server will not start again: .*$detail/ : qr/LOG:  persistent cache: the next start will be (?:cold: .*$detail|without it)/,
		"$name: so does the log of the shutdown") if $name ne 'after a run without the pool';
	unlike($log, qr/persistent cache: the (?:next start|server) will/, "$name: which says nothing else") if $expected == 0;
	($rc) = pcache($node, 'check');
	is($rc, $expected, "$name: exit code of pg_pcache check while the server is down");
	$offset = log_offset($node);
	if ($expected == 1)
	{
		start_fails($node, $name eq 'a wrong value' ? qr/invalid value for parameter "shared_buffers"/ : qr/FATAL:  .*$detail/, $name);
		$undo->() if $undo;
		set('');
		$node->start;
	}
	else
	{
		$node->start;
		is(start_outcome($node, $offset)->{start}, $expected == 0 ? 'warm' : 'cold', "$name: so it is") if $reason ne 'off';
		$undo->() if $undo;
	}
}
# A pool that is formatted needs room, too.
$node->stop;
write_bytes($pool, $_, "\0" x 16) for 0, COPY_OFFSET;
set("shared_buffers = $too_many");
my ($rc, undef, $err) = pcache($node, 'check');
is($rc, 1, 'a damaged pool, without room: exit code of pg_pcache check');
like($err, qr/could not allocate \d+ MB for file ".*": No space left on device/, 'a damaged pool, without room: pg_pcache check says why');
start_fails($node, qr/FATAL:  could not allocate \d+ MB for file ".*": No space left on device/, 'a damaged pool, without room');
set('');
is((pcache($node, 'check'))[0], 2, 'a damaged pool: exit code of pg_pcache check');
my $offset = log_offset($node);
$node->start;
is(start_outcome($node, $offset)->{start}, 'cold', 'a damaged pool: so it is');
done_testing();
