
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache check and verify, pg_pcache_next_start() and the start agree, of what
# they used to disagree about: holes, permissions, files that are not the server's,
# settings that keep the server down, limits.

use strict;
use warnings FATAL => 'all';

use File::Copy qw(copy);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = pool_root();
my $node = new_node('main', shared_buffers => '16MB', size => '32MB');
my $data = $node->data_dir;
my $pool = pool_file($node);
my $configuration = slurp_file("$data/postgresql.conf");
my ($free_mb) = (run_command([ 'df', '-Pm', $root ]))[0] =~ /^\S+\s+\d+\s+\d+\s+(\d+)\s+\d+%/m;
my $too_many = 2 * $free_mb * 1024 / 8;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache; CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
load_data($node, rows => 500);
my $expected = checksums($node);

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

# What each of those who foretell says of the server that runs.  The exit status of
# check and the reason of SQL are given, and a pattern for what both tell.
sub foretold_running
{
	my ($name, $rc, $reason, $detail) = @_;
	my ($got, $out, $err) = pcache($node, 'check');
	my ($warm, $got_reason, $got_detail) = split /\|/,
	  $node->safe_psql('postgres', q{SELECT warm, reason, concat_ws('; ', detail, hint) FROM pg_pcache_next_start()}), 3;

	is($got, $rc, "$name: exit status of pg_pcache check") or diag($out . $err);
	is("$warm $got_reason", ($rc == 0 ? 't' : 'f') . " $reason", "$name: pg_pcache_next_start()") or diag($got_detail);
	return if !defined $detail;
	like($out . $err, $detail, "$name: pg_pcache check says why");
	like($got_detail, $detail, "$name: pg_pcache_next_start() says why");
	return;
}

# The server is down: the same of pg_pcache, and then of the start itself.  The
# server runs afterwards unless it refused, for which the pattern has no comma.
sub foretold_and_starts
{
	my ($name, $rc, $reason, $detail) = @_;
	my $offset;

	for my $verb ('verify', 'check')
	{
		my ($got, $out, $err) = pcache($node, $verb);

		is($got, $rc, "$name: exit status of pg_pcache $verb while the server is down") or diag($out . $err);
		like($out . $err, $detail, "$name: pg_pcache $verb says why") if defined $detail;
	}
	return start_fails($node, qr/FATAL:  .*$detail/s, $name) if $rc == 1;
	$offset = log_offset($node);
	$node->start;
	is(start_outcome($node, $offset)->{start}, $rc == 0 ? 'warm' : 'cold', "$name: so it is");
	like(start_outcome($node, $offset)->{reason}, $detail, "$name: the server says why") if $rc == 2;
	is(checksums($node), $expected, "$name: contents are right");
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

sub punch
{
	my ($file, $offset, $length) = @_;
	system_or_bail('fallocate', '--punch-hole', '--offset' => $offset, '--length' => $length, $file);
	return;
}

# 1.  A pool with holes, for which there is no room.  It is larger than the file
# system because its superblock says so.
my $no_room = qr/could not allocate \d+ MB for file "[^"]*": No space left on device.*Enlarge its file system \(mount -o remount,size=\.\.\.\), or decrease "shared_buffers"\./s;
{
	my $mb2 = 2 * 1024 * 1024;
	my $blocks_offset = $mb2 * int(($mb2 + $too_many * DESCRIPTOR_SIZE + $mb2 - 1) / $mb2);
	my $size = $mb2 * int(($blocks_offset + $too_many * 8192 + $mb2 - 1) / $mb2);

	warm_up($node);
	$node->stop;
	copy($pool, "$root/saved") or die $!;
	patch_superblock($pool, capacity => $too_many, blocks_offset => $blocks_offset, pool_size => $size);
	truncate $pool, $size or die $!;
	foretold_and_starts('holes, without room', 1, undef, $no_room);
	mkdir "$root/holey", 0700 or die $!;
	rename $pool, "$root/holey/pool" or die $!;
	copy("$root/saved", $pool) or die $!;
	chmod 0600, $pool;
	$node->start;
	set("persistent_cache_directory = '$root/holey'");
	foretold_running('holes elsewhere, without room', 1, 'refused', $no_room);
	set('');
	unlink "$root/holey/pool";
}

# 2.  A pool that cannot be opened for writing.
SKIP:
{
	skip 'root may write everywhere', 1 if $> == 0;
	agree('not writable', sub { chmod 0400, $pool; return sub { chmod 0600, $pool } }, 1, 'refused',
		qr/could not open persistent cache pool "\Q$pool\E": Permission denied/);
}

# 3.  A hole between the superblocks and the descriptors.
agree('a hole before the descriptors', sub { punch($pool, DESCRIPTORS_OFFSET - 4096, 4096); return }, 2, 'hole',
	qr/the pool file has a hole where it may have said that its pages cannot be kept/);

# 4.  The file by that name is not the server's.
sub replace_by_copy
{
	copy($pool, "$pool.copy") or die $!;
	chmod 0600, "$pool.copy";
	rename "$pool.copy", $pool or die $!;
	return;
}
agree('a copy in place of the pool', \&replace_by_copy, 2, 'dirty', qr/the server was not shut down cleanly/);
$configuration =~ s/^persistent_cache_mode = .*$/persistent_cache_mode = always/m or die;
set('');
$node->restart;
agree('a copy in place of the pool, mode always', \&replace_by_copy, 2, 'checkpoint',
	qr/the pool is not the one that the server uses, so it will not have its last checkpoint|the pool knows of checkpoints/);
$configuration =~ s/^persistent_cache_mode = .*$/persistent_cache_mode = planned_restart/m or die;
set('');
$node->restart;

# 5.  The record is lost while the server runs.
agree('no record', sub { unlink state_file($node) or die $!; return }, 2, 'incarnation', qr/the data directory has no record of a pool/);

# 6.  Settings that keep the server down, and some that look so.
my $auto = slurp_file("$data/postgresql.auto.conf");
my $in_file = qr/configuration file "\Q$data\E\/postgresql\.conf" contains errors/;
agree('a value out of range', 'persistent_cache_workers = 1000', 1, 'refused', $in_file);
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

# Nothing of the files is shown to those who may not read pg_file_settings.
for my $line ('persistent_cache_size = sesame', 'sesame sesame sesame', 'sesame = 1', "timezone = 'sesame'", "include 'sesame'")
{
	set($line);
	for my $level ('debug5', 'debug1', 'notice')
	{
		my ($rc, $out, $err) = $node->psql('postgres', "SET client_min_messages = $level; SELECT reason, detail, hint FROM pg_pcache_next_start()",
			extra_params => [ '-U', 'watcher' ]);

		is($rc, 0, "$line, $level: a member of pg_monitor may ask");
		like($out, qr/^refused\|configuration file/m, "$line, $level: and is told that it is wrong");
		# what psql sent is not what the server read
		unlike($out . $err, qr/sesame/, "$line, $level: but not what");
	}
}
# Some of that PostgreSQL tells with a level of its own.
for my $line ("include_if_exists 'sesame'", "include_if_exists 'sesame'\nsesame = 1", "lc_monetary = 's\xc3\xa9same'")
{
	set($line);
	for my $level ('debug1', 'log', 'warning')
	{
		my ($rc, $out, $err) = $node->psql('postgres', "SET client_min_messages = $level; SELECT reason FROM pg_pcache_next_start(); SHOW client_min_messages",
			extra_params => [ '-U', 'watcher' ]);

		is($rc, 0, "$line, $level: a member of pg_monitor may ask");
		unlike($out . $err, qr/s(?:e|\xc3\xa9)same/, "$line, $level: and is not told what the files say");
		like($out, qr/^$level$/m, "$line, $level: the level is what it was");
	}
}
set('');

# 7.  A directory with a newline.
agree('a newline', "persistent_cache_directory = '$root/new\\nline'", 1, 'refused', $in_file);
ok(!-e "$root/new\nline", 'a newline: nothing was created');
mkdir "$root/new\nline", 0700 or die $!;
symlink "$root/new\nline", "$root/newline" or die $!;
agree('a link to a newline', "persistent_cache_directory = '$root/newline'", 1, 'refused', qr/directory name ".*" contains a newline/s);
is_deeply([ glob "'$root/newline/*'" ], [], 'a link to a newline: nothing was created');

# 9.  No room to make the pool larger.
agree('larger shared_buffers, without room', "shared_buffers = $too_many", 1, 'refused',
	qr/(?:is too small for "shared_buffers": it has room for 4096 blocks, $too_many are needed|There is no room to make it larger: the file needs \d+ MB\.).*Enlarge its file system \(mount -o remount,size=\.\.\.\), or decrease "shared_buffers"\./s);

# 10.  A limit on the size of files.  What there is already is not concerned.
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
	like($node->safe_psql('postgres', q{SELECT concat_ws('; ', reason, detail, hint) FROM pg_pcache_next_start()}), qr/^refused; $told/, 'ulimit: pg_pcache_next_start()');
	for my $verb ('check', 'verify')
	{
		$node->stop if $verb eq 'verify';
		IPC::Run::run([ 'sh', '-c', "$limit; exec pg_pcache $verb -D '$data'" ], '>' => \$out, '2>' => \$err);
		is($? >> 8, 1, "ulimit: exit status of pg_pcache $verb");
		like($err, $told, "ulimit: pg_pcache $verb says why");
	}
	$offset = log_offset($node);
	ok(!pg_ctl('start', $limit), 'ulimit: the server does not start');
	like(slurp_file($node->logfile, $offset), qr/FATAL:  $told/, 'ulimit: for the right reason');
	IPC::Run::run([ 'sh', '-c', "$limit; exec pg_pcache init --force -D '$data'" ], '>' => \$out, '2>' => \$err);
	is($?, 1 << 8, 'ulimit: pg_pcache init fails, and is not killed');
	like($err, $told, 'ulimit: pg_pcache init says why');
	$node->start;
}

# A directory in place of the record.
agree('a directory in place of the record', sub {
	unlink state_file($node);
	mkdir state_file($node) or die $!;
	return sub { rmdir state_file($node) or die $! };
}, 1, 'refused', qr/could not write file "\Q$data\E\/pg_pcache\.state": it is a directory/);

# Settings on the command line of the server that runs, which pg_ctl gives again.
{
	my $offset;

	$node->stop;
	ok(pg_ctl('start', 'true', '--options' => "-c persistent_cache_directory='$root/by command'"), 'command line: starts');
	warm_up($node);
	foretold_running('command line, another directory', 0, 'warm');
	$offset = log_offset($node);
	ok(pg_ctl('restart', 'true'), 'command line, another directory: restarts');
	is(start_outcome($node, $offset)->{start}, 'warm', 'command line, another directory: warm');
	$node->stop;
	ok(pg_ctl('start', 'true', '--options' => '-c persistent_cache_mode=off'), 'command line, mode off: starts');
	foretold_running('command line, mode off', 2, 'off', qr/persistent_cache_mode is off/);
	$node->stop;
	isnt(verb_json($node, 'check')->{reason}, 'off', 'command line: a start does not give it again');
}
done_testing();
