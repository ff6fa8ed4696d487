
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache check and verify agree with the start: on settings, places, permissions,
# holes, room, limits, and on what keeps the server down.

use strict;
use warnings FATAL => 'all';

use File::Copy qw(copy);
use File::Temp qw();
use IPC::Run qw();
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = pool_root();
my $disk = File::Temp::tempdir('forecasts-XXXXXX', DIR => "$ENV{PCACHE_ROOT}/build/tmp", CLEANUP => 1);
my $other = new_node('other', shared_buffers => '16MB');
$other->start;
my $node = new_node('main', shared_buffers => '16MB', size => '32MB', init => { allows_streaming => 1 }, conf => "pcache.required = on\n");
my $data = $node->data_dir;
my $pool = pool_file($node);
my $configuration = slurp_file("$data/postgresql.conf");
my ($free_mb) = (run_command([ 'df', '-Pm', $root ]))[0] =~ /^\S+\s+\d+\s+\d+\s+(\d+)\s+\d+%/m;
my $too_many = 2 * $free_mb * 1024 / 8;
$node->start;
load_data($node, rows => 500);
my $expected = checksums($node, tables => [LOGGED]);

sub set
{
	my ($settings) = @_;

	open my $fh, '>', "$data/postgresql.conf" or die $!;
	print $fh "$configuration\n$settings\n";
	close $fh;
	return;
}

# Start with this command before pg_ctl in a shell, for limits, and these options.
sub pg_ctl
{
	my ($action, $before, @options) = @_;
	local %ENV = $node->_get_env();
	my $rc = system('sh', '-c', "$before; exec \"\$@\"", 'sh', 'pg_ctl', '--wait', '--silent',
		'--pgdata' => $data, '--log' => $node->logfile, @options, $action);

	$node->_update_pid($rc == 0 ? 1 : -1);
	return $rc == 0;
}

# What pg_pcache check says of the server that runs: its exit status, and a pattern.
sub foretold_running
{
	my ($name, $rc, $reason, $detail) = @_;
	my ($got, $out, $err) = pcache($node, 'check');

	is($got, $rc, "$name: exit status of pg_pcache check") or diag($out . $err);
	like($out . $err, $detail, "$name: pg_pcache check says why") if defined $detail;
	return;
}

# The server is down: the same of check and verify, and then of the start itself.  The
# server runs afterwards unless it refused.
sub foretold_and_starts
{
	my ($name, $rc, $reason, $detail) = @_;
	my ($offset, $outcome);

	for my $verb ('verify', 'check')
	{
		my ($got, $out, $err) = pcache($node, $verb);

		is($got, $rc, "$name: exit status of pg_pcache $verb while the server is down") or diag($out . $err);
		like($out . $err, $detail, "$name: pg_pcache $verb says why") if defined $detail;
	}
	return start_fails($node, qr/FATAL:  .*$detail/s, $name) if $rc == 1;
	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, $rc == 0 ? 'warm' : $reason eq 'off' ? undef : 'cold', "$name: so it is");
	like($outcome->{reason}, $detail, "$name: the server says why") if $rc == 2 && $reason !~ /^(?:off|new)$/;
	is(checksums($node, tables => [LOGGED]), $expected, "$name: contents are right");
	return;
}

# All of them, while code, or settings, are in force.  The code returns more code
# that takes that back, to be called before the server is started again.
sub agree
{
	my ($name, $change, @foretold) = @_;
	my $undo;

	warm_up($node);
	if (ref $change) { $undo = $change->() }
	else { set($change) }
	foretold_running($name, @foretold);
	$node->stop;
	foretold_and_starts($name, @foretold);
	$node->stop if $foretold[0] != 1;
	$undo->() if $undo;
	set('');
	$node->start;
	return;
}

sub set_always { my ($value) = @_; $configuration =~ s/^pcache\.mode = .*$/pcache.mode = $value/m or die; set(''); $node->restart; return }

# ---------------------------------------------------------------- settings and places
agree('as it is', '', 0, 'warm');
agree('smaller shared_buffers', 'shared_buffers = 8MB', 0, 'warm');
agree('larger shared_buffers, with room', 'shared_buffers = 64MB', 0, 'warm');
agree('mode off', 'pcache.mode = off', 2, 'off', qr/pcache\.mode is off/);
agree('another place in memory', "pcache.directory = '$root/another'", 2, 'new', qr/there is no pool yet, and the server will create it/);
agree('the place of another server', "pcache.directory = '" . pool_dir($other) . "'", 1, 'refused', qr/is locked by another process/);
agree('a place on disk', "pcache.directory = '$disk/x'", 1, 'refused',
	qr/there is no persistent cache pool in directory "\Q$disk\E\/x", and "\Q$disk\E" is on an ordinary file system.*Is the file system for the pool mounted\?/s);
is_deeply([ glob "$disk/*" ], [], 'a place on disk: nothing is made there');
symlink $data, "$disk/link" or die $!;
agree('inside the data directory', "pcache.directory = '$disk/link/base/there'", 1, 'refused', qr/directory ".*" is inside the data directory/);
ok(!-e "$data/base/there", 'inside the data directory: nothing is made there');
agree('others may change the directory', sub { chmod 0770, pool_dir($node); return sub { chmod 0700, pool_dir($node) } },
	1, 'refused', qr/has invalid permissions/);
SKIP:
{
	skip 'root may write everywhere', 1 if $> == 0;
	agree('not writable', sub { chmod 0400, $pool; return sub { chmod 0600, $pool } }, 1, 'refused',
		qr/could not open persistent cache pool "\Q$pool\E": Permission denied/);
	# a mount that is there again, for somebody else
	mkdir "$root/mount" or die $!;
	chmod 0555, "$root/mount";
	agree('nothing can be made there', "pcache.directory = '$root/mount/pool'", 1, 'refused',
		qr/could not create the persistent cache pool: directory "\Q$root\E\/mount" is not writable: Permission denied/);
	chmod 0755, "$root/mount";
}

# ---------------------------------------------------------------- the file
agree('the pool is deleted', sub { unlink $pool or die $!; return }, 2, 'new', qr/there is no pool yet, and the server will create it/);
agree('a hole before the entries', sub {
		system_or_bail('fallocate', '--punch-hole', '--offset' => DESCRIPTORS_OFFSET - 4096, '--length' => 4096, $pool);
		return;
	}, 2, 'hole', qr/the pool file has a hole where it may have said that its pages cannot be kept/);
sub replace_by_copy
{
	copy($pool, "$pool.copy") or die $!;
	chmod 0600, "$pool.copy";
	rename "$pool.copy", $pool or die $!;
	return;
}
agree('a copy in place of the pool', \&replace_by_copy, 2, 'dirty', qr/the server was not shut down cleanly/);
set_always('always');
agree('a copy in place of the pool, mode always', \&replace_by_copy, 2, 'checkpoint',
	qr/the pool is not the one that the server uses, so it will not have its last checkpoint|the pool knows of checkpoint|the pool is a copy of the one/);
set_always('planned_restart');

# A pool with holes, for which there is no room.  It is larger than the file system
# because its superblock says so.
{
	my $mb2 = 2 * 1024 * 1024;
	my $no_room = qr/(?:could not allocate \d+ MB for file "[^"]*": No space left on device|not enough space in ".*" for the persistent cache pool).*Enlarge its file system \(mount -o remount,size=\.\.\.\), or decrease "shared_buffers"\./s;
	my $sb = read_superblock($pool);
	my $blocks_offset = $mb2 * int(($sb->{blocks_offset} - $mb2) / $sb->{capacity} * $too_many / $mb2 + 3);
	my $size = $mb2 * int(($blocks_offset + $too_many * 8192 + $mb2 - 1) / $mb2);

	$node->stop;
	copy($pool, "$root/saved") or die $!;
	patch_superblock($pool, capacity => $too_many, blocks_offset => $blocks_offset, pool_size => $size);
	truncate $pool, $size or die $!;
	foretold_and_starts('holes, without room', 1, undef, $no_room);
	copy("$root/saved", $pool) or die $!;
	unlink $pool;
	set("pcache.size = $too_many");
	foretold_and_starts('no pool, without room', 1, undef, qr/not enough space in ".*" for the persistent cache pool: \d+ MB needed, \d+ MB available/);
	ok(!-e $pool, 'no pool, without room: none is made');
	set('');
	$node->start;
}

# ---------------------------------------------------------------- the cluster
agree('point-in-time recovery', sub {
		set("restore_command = 'false'");
		append_to_file("$data/recovery.signal", '');
		# the server removes it when recovery has ended
		return;
	}, 2, 'recovery target', qr/point-in-time recovery was requested/);
$node->stop;
set('pcache.mode = off');
$node->start;
$node->stop;
set('');
foretold_and_starts('after a run without the pool', 2, 'checkpoint', qr/^(?:next start: COLD: )?the pool was saved at checkpoint \S+, the last checkpoint of the cluster is at /m);

# ---------------------------------------------------------------- settings that keep the server down
# And some that look so.
my $auto = slurp_file("$data/postgresql.auto.conf");
my $in_file = qr/configuration file "\Q$data\E\/postgresql\.conf" contains errors/;
agree('a wrong value', 'shared_buffers = many', 1, 'refused', $in_file);
agree('an unknown name', 'no_such_setting = 1', 1, 'refused', $in_file);
agree('a wrong value of another setting', "timezone = 'Nowhere/None'", 1, 'refused', $in_file);
agree('two recovery targets', "recovery_target_name = 'a'\nrecovery_target_xid = '1000'", 1, 'refused', qr/multiple recovery targets specified/);
agree('a wrong value that another one replaces', "shared_buffers = many\nshared_buffers = 16MB", 0, 'warm');
agree('a setting of a library that is not loaded', "no_such_library.setting = 'x'", 0, 'warm');
agree('what only sessions could refuse', "default_tablespace = 'nowhere'\ntemp_buffers = 2000", 0, 'warm');
for my $case ([ 'an unknown name', 'no_such_setting = 1' ], [ 'a syntax error', '= = =' ])
{
	agree("$case->[0] in postgresql.auto.conf", sub {
		append_to_file("$data/postgresql.auto.conf", "$case->[1]\n");
		return sub { open my $fh, '>', "$data/postgresql.auto.conf" or die $!; print $fh $auto; close $fh };
	}, 1, 'refused', qr/configuration file "(?:\Q$data\E\/)?postgresql\.auto\.conf" contains errors/);
}

# A limit on the size of files.  What there is already is not concerned.
# (In blocks of 512 bytes: 16 MB, as much as a segment of WAL.)
{
	my $limit = 'ulimit -f 32768';
	my $told = qr/the persistent cache pool in "\Q$root\E[^"]*" needs a file of \d+ MB, but the limit on the size of files is 16 MB.*ulimit -f/s;
	my ($out, $err, $offset);

	warm_up($node);
	$node->stop;
	$offset = log_offset($node);
	ok(pg_ctl('start', $limit), 'ulimit: a pool that exists can be used');
	is(start_outcome($node, $offset)->{start}, 'warm', 'ulimit: warm');
	unlink $pool;
	$node->stop;
	for my $verb ('check', 'verify', 'init --force')
	{
		IPC::Run::run([ 'sh', '-c', "$limit; exec pg_pcache $verb -D '$data'" ], '>' => \$out, '2>' => \$err);
		is($?, 1 << 8, "ulimit: exit status of pg_pcache $verb");
		like($err, $told, "ulimit: pg_pcache $verb says why");
	}
	$offset = log_offset($node);
	ok(!pg_ctl('start', $limit), 'ulimit: the server does not start');
	like(slurp_file($node->logfile, $offset), qr/FATAL:  $told/, 'ulimit: for the right reason');
	$node->start;
}

# Settings on the command line of the server that runs, which pg_ctl gives again.
{
	my $offset;

	$node->stop;
	ok(pg_ctl('start', 'true', '--options' => "-c pcache.directory='$root/by command'"), 'command line: starts');
	warm_up($node);
	foretold_running('command line, another directory', 0, 'warm');
	$offset = log_offset($node);
	ok(pg_ctl('restart', 'true'), 'command line, another directory: restarts');
	is(start_outcome($node, $offset)->{start}, 'warm', 'command line, another directory: warm');
	$node->stop;
	ok(pg_ctl('start', 'true', '--options' => '-c pcache.mode=off'), 'command line, mode off: starts');
	foretold_running('command line, mode off', 2, 'off', qr/pcache\.mode is off/);
	$node->stop;
	isnt(verb_json($node, 'check')->{reason}, 'off', 'command line: a start does not give it again');
}
$other->stop;

done_testing();
