# Copyright (c) 2026, the persistent-cache developers

# wal_sync_method = pmem: where it is refused, how it is switched on and off,
# segments of several sizes, counters, media errors.

use strict;
use warnings FATAL => 'all';

use IPC::Run qw();
use PCache;
use PCache::Wal;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $message = qr/"wal_sync_method" cannot be "pmem" because "pg_wal" is not on persistent memory/;
my $hint = qr/HINT:\s+Put "pg_wal" on a file system that is on an fsdax namespace/;
my $tmpfs = qr/DETAIL:\s+The file system mounted at "\S+" \(type tmpfs, options "[^"]*"\) does not allow mappings with MAP_SYNC/;

refused();
local $ENV{PMEM_IS_PMEM_FORCE} = '1';
basic();
counters();
switching();
segment_sizes();
creation();
removed_segments();
without_fsync();
not_mappable();
bus_error();
full_disk();
test_fsync();
drains();
done_testing();

sub refused
{
	my $node = new_wal_node('refused');
	my $offset;
	my ($rc, $err);

	delete local $ENV{PMEM_IS_PMEM_FORCE};
	is($node->start(fail_ok => 1), 0, 'no start on tmpfs without the test switch');
	like($node->log_content, qr/FATAL:  $message/, 'FATAL says why');
	like($node->log_content, $tmpfs, '... names the mount');
	like($node->log_content, $hint, '... and says what to do');
	is_deeply([ glob $node->data_dir . '/pg_wal/xlogtemp*' ], [], 'nothing is left in pg_wal');

	$node->adjust_conf('postgresql.conf', 'wal_sync_method', 'fdatasync');
	$offset = log_offset($node);
	$node->start;
	method_is_refused($node, 'pmem', $message, $tmpfs, $hint);
	$node->stop;
	return;
}

sub basic
{
	my $node = new_wal_node('basic');
	my ($out, $err, $start, $end);

	$node->start;
	is($node->safe_psql('postgres', 'SHOW wal_sync_method'), 'pmem', 'wal_sync_method is pmem');
	like($node->safe_psql('postgres',
			q{SELECT enumvals FROM pg_settings WHERE name = 'wal_sync_method'}),
		qr/\bpmem\b/, 'it is among the values');
	is($node->safe_psql('postgres',
			q{SELECT count(*) FROM pg_wait_events WHERE type = 'IO' AND name = 'WalMap'}),
		1, 'wait event for mapping');
	$start = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	$node->safe_psql('postgres', 'CREATE TABLE t (id int PRIMARY KEY, filler text)');
	$node->safe_psql('postgres', q{INSERT INTO t SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, 40000) g});
	$end = $node->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');

	my $backend = $node->background_psql('postgres');
	$backend->query_safe(q{INSERT INTO t VALUES (0, 'x')});
	my $maps = slurp_file('/proc/' . $backend->query_safe('SELECT pg_backend_pid()') . '/maps');
	like($maps, qr{rw-s .*/wal_\S*/[0-9A-F]{24}\n}, 'a session that commits has its segment mapped');
	$backend->quit;

	($out, $err) = read_wal($node, $start, $end);
	like($out, qr/CREATE|COMMIT/, 'pg_waldump reads it');
	unlike($err, qr/error/, '... up to the flushed location');
	$node->stop('immediate');
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 40001, 'all there after a crash');
	$node->stop;
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 40001, 'and after a restart');

	# An unpatched server takes over.
	$node->stop;
	my $vanilla = vanilla_install();
  SKIP:
	{
		skip 'no unpatched installation', 1 if !defined $vanilla;
		$node->adjust_conf('postgresql.conf', 'wal_sync_method', 'fdatasync');
		with_install($node, $vanilla,
			sub {
				$node->start;
				is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 40001, 'an unpatched server goes on');
				$node->safe_psql('postgres', q{INSERT INTO t VALUES (-1, 'y')});
				$node->stop('immediate');
			});
		$node->adjust_conf('postgresql.conf', 'wal_sync_method', 'pmem');
		$node->start;
		is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 40002, 'and back');
		$node->stop;
	}
	return;
}

# What pg_stat_io says of one session's WAL.
sub wal_io
{
	my ($session) = @_;

	$session->query_safe('SELECT pg_stat_force_next_flush()');
	return map { $_ eq '' ? 0 : $_ } split /\|/, $session->query_safe(q{
SELECT sum(writes), sum(write_bytes), sum(fsyncs)
FROM pg_stat_get_backend_io(pg_backend_pid()) WHERE object = 'wal' AND context = 'normal'});
}

sub counters
{
	my $node = new_wal_node('counters', conf => "track_wal_io_timing = on\nwal_writer_delay = 10s");
	my ($session, @before, @after, $start, $end);

	$node->start;
	$node->safe_psql('postgres', 'CREATE TABLE t (id int)');
	$session = $node->background_psql('postgres');
	$session->query_safe('INSERT INTO t VALUES (0)');
	@before = wal_io($session);
	$start = $session->query_safe('SELECT pg_current_wal_flush_lsn()');
	$session->query_safe("INSERT INTO t VALUES ($_)") for 1 .. 100;
	$end = $session->query_safe('SELECT pg_current_wal_flush_lsn()');
	@after = wal_io($session);

	my $wal = lsn_number($end) - lsn_number($start);
	my $written = $after[1] - $before[1];
	my $pages = int($wal / 8192) + 2;

	cmp_ok($after[0] - $before[0], '>=', 100, 'pg_stat_io: a write for each commit');
	cmp_ok($written, '>=', $wal, 'pg_stat_io: bytes written are at least the WAL');
	cmp_ok($written, '<=', $wal + $pages * 8192, '... and at most a page of zeros for each page more');
	is($after[2] - $before[2], 0, 'pg_stat_io: no fsync');
	$session->quit;
	$node->stop;
	return;
}

sub switching
{
	my $node = new_wal_node('switching', segsize => 1, method => 'fdatasync',
		conf => "max_wal_size = 8MB\nmin_wal_size = 2MB");
	my @methods = qw(pmem fdatasync pmem open_datasync pmem fsync open_sync pmem);
	my ($pgbench, $out, $err, $sessions, $acked);

	$node->start;
	$node->safe_psql('postgres', 'CREATE TABLE t (id bigserial PRIMARY KEY, client int)');
	$node->command_ok([ 'pgbench', '-i', '-q', '-s', 1, 'postgres' ], 'switching: pgbench -i');

	for my $i (0 .. $#methods)
	{
		my $script = $node->basedir . '/insert.sql';

		append_to_file($script, "INSERT INTO t (client) VALUES (:client_id);\n") if !-e $script;
		$pgbench = IPC::Run::start(
			[ 'pgbench', '-n', '-c', 4, '-T', 600, '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
			'>', \$out, '2>', \$err);
		$node->poll_query_until('postgres', 'SELECT count(*) > 100 FROM t') if $i == 0;
		switch_method($node, $methods[$i]);

		# all sessions have noticed; then crash
		my $n = $node->safe_psql('postgres', 'SELECT count(*) FROM t');
		$node->poll_query_until('postgres', "SELECT count(*) > $n + 300 FROM t");
		$acked = $node->safe_psql('postgres', 'SELECT count(*) FROM t');
		kill_all($node) if $i % 2;
		$node->stop('immediate') if !($i % 2);
		IPC::Run::finish($pgbench);
		$node->start;
		cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM t'), '>=', $acked,
			"switched to $methods[$i] under load, crashed, nothing visible before is lost");
	}

	# One session that lives through all of it, with a checkpoint in between.
	$sessions = $node->background_psql('postgres');
	for my $method (@methods)
	{
		switch_method($node, $method);
		$sessions->query_safe('INSERT INTO t (client) VALUES (-1)');
		$node->poll_query_until('postgres',
			"SELECT count(*) = 0 FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()");
		is($sessions->query_safe('SHOW wal_sync_method'), $method, "an old session switches to $method");
		$sessions->query_safe('CHECKPOINT; SELECT pg_switch_wal()');
	}
	$sessions->quit;
	$node->stop('immediate');
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE client = -1'), scalar @methods, 'its commits are there');
	$node->stop;
	return;
}

sub segment_sizes
{
	for my $mb (1, 16, 64)
	{
		my $node = new_wal_node("seg$mb", segsize => $mb,
			conf => 'max_wal_size = ' . 4 * $mb . "MB\nmin_wal_size = " . 2 * $mb . 'MB');
		my ($start, $end, $out, $err, $file, $offset);

		$node->start;
		$node->safe_psql('postgres', 'CREATE TABLE t (id int, filler text)');
		$node->safe_psql('postgres', 'INSERT INTO t SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, '
			  . 1100 * $mb . ') g; CHECKPOINT')
		  for 1 .. 3;
		$start = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
		$node->safe_psql('postgres', 'INSERT INTO t VALUES (0, NULL)');

		# the rest of a segment that was switched away from is zeros
		$end = $node->safe_psql('postgres', 'SELECT pg_switch_wal()');
		($file, $offset) = segment_of($node, $end, $mb);
		open my $fh, '<:raw', $file or die "could not open $file: $!";
		sysseek $fh, $offset, 0;
		my $rest = '';
		1 while sysread $fh, $rest, 1 << 20, length $rest;
		close $fh;
		ok($rest !~ /[^\0]/, "$mb MB: the rest after pg_switch_wal is zeros");

		$node->safe_psql('postgres', 'INSERT INTO t VALUES (0, NULL)');
		$end = $node->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');
		($out, $err) = read_wal($node, $start, $end);
		unlike($err, qr/error/, "$mb MB: pg_waldump reads across the switch");
		kill_all($node);
		$node->start;
		is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 3300 * $mb + 2, "$mb MB: all there after a crash");
		$node->stop;
	}
	return;
}

sub creation
{
	for my $case ([ 'off', 'off' ], [ 'off', 'on' ], [ 'on', 'off' ])
	{
		my ($zero, $recycle) = @$case;
		my $node = new_wal_node("zero_${zero}_recycle_$recycle", segsize => 1,
			conf => "wal_init_zero = $zero\nwal_recycle = $recycle\nmax_wal_size = 4MB\nmin_wal_size = 2MB");

		$node->start;
		$node->safe_psql('postgres', 'CREATE TABLE t (id int, filler text)');
		$node->safe_psql('postgres', 'INSERT INTO t SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, 4000) g; CHECKPOINT')
		  for 1 .. 3;
		kill_all($node);
		$node->start;
		is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 12000,
			"wal_init_zero = $zero, wal_recycle = $recycle: all there after a crash");
		$node->stop;
	}
	return;
}

# Idle sessions must not keep removed segments from being freed.
sub removed_segments
{
	my $node = new_wal_node('removed', segsize => 1,
		conf => "wal_recycle = off\nmax_wal_size = 64MB\nmin_wal_size = 2MB");
	my ($session, $pid, $before);

	$node->start;
	$node->safe_psql('postgres', 'CREATE TABLE t (id int, filler text)');
	$session = $node->background_psql('postgres');
	$pid = $session->query_safe('SELECT pg_backend_pid()');
	$session->query_safe(q{INSERT INTO t SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, 4000) g});
	$before = () = slurp_file("/proc/$pid/maps") =~ m{/wal_\S*/[0-9A-F]{24}$}mg;
	cmp_ok($before, '>', 1, 'a session keeps several segments mapped');
	$node->safe_psql('postgres', 'SELECT pg_switch_wal(); CHECKPOINT');

	my $left;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$left = () = slurp_file("/proc/$pid/maps") =~ m{/wal_\S* \(deleted\)}g;
		last if !$left;
		select undef, undef, undef, 0.1;
	}
	is($left, 0, 'an idle session lets go of removed segments');
	$session->query_safe('INSERT INTO t VALUES (0, NULL)');
	$session->quit;
	$node->stop('immediate');
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 4001, 'and writes on');
	$node->stop;
	return;
}

sub without_fsync
{
	my $node = new_wal_node('nofsync');

	$node->adjust_conf('postgresql.conf', 'fsync', 'off');
	$node->start;
	$node->safe_psql('postgres', 'CREATE TABLE t AS SELECT generate_series(1, 1000) AS id');
	$node->adjust_conf('postgresql.conf', 'fsync', 'on');
	$node->reload;
	$node->poll_query_until('postgres', q{SELECT setting = 'on' FROM pg_settings WHERE name = 'fsync'});
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (0)');
	kill_all($node);
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 1001, 'fsync switched on while running');
	$node->stop;
	return;
}

# A segment that cannot be mapped as persistent memory is still written, and
# the log says how.
sub not_mappable
{
	my $node = new_wal_node('odd', segsize => 1);
	my $disk = $node->basedir . '/segment';
	my ($file) = glob $node->data_dir . '/pg_wal/0*';
	my $offset = log_offset($node);

	$node->start;
	$node->safe_psql('postgres', 'CREATE TABLE t (id int); SELECT pg_switch_wal()');
	my $lsn = $node->safe_psql('postgres', 'SELECT pg_current_wal_lsn()');
	$node->stop('immediate');
	($file) = segment_of($node, $lsn, 1);
	truncate $file, 1024 * 1024 + 8192 or die "could not extend $file: $!" if -e $file;
	$node->start;
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (1)');
	$node->stop('immediate');
	like(slurp_file($node->logfile, $offset),
		qr/WAL file "pg_wal\/\w+" is written with system calls although "wal_sync_method" is "pmem"\n.*This is because its size is wrong/,
		'a segment of the wrong size is written with system calls');
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 1, 'and what was committed is there');
	$node->stop;
	return;
}

sub bus_error
{
	my $node = new_wal_node('sigbus', conf => "restart_after_crash = off\nwal_writer_delay = 10s");
	my ($session, $file, $offset);

	$node->start;
	$session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query_safe('CREATE TABLE t (id int)');
	($file, $offset) = segment_of($node, $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()'));

	# what a bad block does: the access faults
	truncate $file, 0 or die "could not truncate $file: $!";
	ok(!defined eval { $session->query('INSERT INTO t VALUES (1)'); 1 }, 'a bus error ends the session');
	PCache::wait_for_death($node->{_pid});
	my ($name, $at) = $node->log_content =~
	  /PANIC:  could not write to log file "(\w+)" at offset (\d+): bus error/;
	is($name, $file =~ s{.*/}{}r, '... with a PANIC that names the file');
	cmp_ok($at // 0, '>=', $offset - 8192, '... and the place');
	$node->{_pid} = undef;
	unlink $node->data_dir . '/postmaster.pid';
	return;
}

# A full file system says nothing of what it can do, so a server that used it
# before starts; one that did not keeps its method.
sub full_disk
{
	my $shim = `pg_config --pkglibdir` =~ s/\n//r . '/wal_direct.so';
	my $fault = pool_root() . '/fault';
	my $node = new_wal_node('full');
	my $offset;

	append_to_file($fault, 'full_trial');
	local $ENV{WAL_DIRECT_FAULT} = $fault;
	local $ENV{LD_PRELOAD} = $shim;
	ok($node->start(fail_ok => 1), 'a full file system is no reason not to start');
	$node->safe_psql('postgres', 'CREATE TABLE t AS SELECT 1');
	switch_method($node, 'fdatasync');
	$offset = log_offset($node);
	$node->adjust_conf('postgresql.conf', 'wal_sync_method', 'pmem');
	$node->reload;
	$node->wait_for_log(qr/$message.*No space left on device/s, $offset);
	is($node->safe_psql('postgres', 'SHOW wal_sync_method'), 'fdatasync', '... but one not to begin with it');
	$node->stop;
	return;
}

sub test_fsync
{
	my $file = pool_root() . '/test_fsync';
	my ($out, $err) = run_command([ 'pg_test_fsync', '-s', 1, '-f', $file ]);

	like($out, qr/^\s+pmem\s+[\d.]+ ops\/sec/m, 'pg_test_fsync measures pmem');
	delete local $ENV{PMEM_IS_PMEM_FORCE};
	($out, $err) = run_command([ 'pg_test_fsync', '-s', 1, '-f', $file ]);
	like($out, qr/^\s+pmem\s+n\/a\*\*$/m, '... and says where it cannot');
	return;
}

# One drain per commit, also with the cache in mode always.
sub drains
{
	my $shim = `pg_config --pkglibdir` =~ s/\n//r . '/wal_media.so';
	my $count = pool_root() . '/drains';
	my $commits = 500;

	append_to_file($count, "\0" x 8);
	local $ENV{WAL_MEDIA_COUNT} = $count;
	for my $mode ('off', has_cache() ? 'always' : ())
	{
		my $node = new_wal_node("drains_$mode", conf => "wal_writer_delay = 10s\ncheckpoint_timeout = 1h");
		my %drains;

		PCache::add_pool($node, mode => $mode, size => '128MB') if $mode ne 'off';
		{
			local $ENV{LD_PRELOAD} = $shim;
			$node->start;
		}
		for my $method ('pmem', 'fdatasync')
		{
			my $session;

			switch_method($node, $method);
			$session = $node->background_psql('postgres');
			$session->query_safe('CHECKPOINT');
			my $before = unpack 'Q', PCache::read_bytes($count, 0, 8);
			$session->query_safe("DO 'BEGIN FOR i IN 1..$commits LOOP
				PERFORM pg_logical_emit_message(true, ''p'', ''m''); COMMIT; END LOOP; END'");
			$drains{$method} = unpack('Q', PCache::read_bytes($count, 0, 8)) - $before;
			$session->quit;
			note "mode $mode, $method: $drains{$method} drains for $commits commits";
		}
		cmp_ok($drains{pmem}, '>=', $commits, "mode $mode, pmem: each commit drains");
		cmp_ok($drains{pmem}, '<=', 1.1 * $commits, "mode $mode, pmem: once");
		cmp_ok($drains{fdatasync}, '<=', 0.1 * $commits, "mode $mode, fdatasync: no drains");
		$node->stop;
	}
	return;
}
