# Copyright (c) 2026, the persistent-cache developers

# wal_sync_method = open_direct: where it is refused, what it writes, short
# writes, a full disk, changes of the method under load.

use strict;
use warnings FATAL => 'all';

use IPC::Run qw();
use PCache;
use PCache::Wal;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $shim = `pg_config --pkglibdir` =~ s/\n//r . '/wal_direct.so';
my $dir = PostgreSQL::Test::Utils::tempdir();
my $message = qr/"wal_sync_method" cannot be "open_direct" because direct I\/O does not work in "pg_wal"/;
my $hint = qr/HINT:\s+Put "pg_wal" on a file system with direct I\/O/;
my $units = qr/DETAIL:\s+The file system mounted at "\S+" \(type \S+, options "[^"]*"\) does not allow direct I\/O in units of 8192 bytes/;

# Flags of the shim: direct and synced.
use constant DIRECT => 3;

plan skip_all => "there is no $shim" if !-e $shim;
$ENV{WAL_DIRECT_LOG} = "$dir/log";
$ENV{WAL_DIRECT_FAULT} = "$dir/fault";

{
	my $probe = new_wal_node('probe', disk => 1, method => 'open_direct');
	my $started = $probe->start(fail_ok => 1);
	plan skip_all => 'no direct I/O on ' . $probe->data_dir
	  if !$started && $probe->log_content =~ $message;
	ok($started, 'a server starts with open_direct');
	is($probe->safe_psql('postgres', 'SHOW wal_sync_method'), 'open_direct', 'and has it');
	$probe->stop;
}

refused();
one_trial();
basic();
gathers();
stable();
difficult();
switching();
without_fsync();
initdb_option();
test_fsync();
done_testing();

sub fault
{
	unlink $ENV{WAL_DIRECT_FAULT};
	append_to_file($ENV{WAL_DIRECT_FAULT}, $_[0]) if defined $_[0];
	return;
}

sub start_shimmed
{
	my ($node, %params) = @_;

	local $ENV{LD_PRELOAD} = $shim;
	return $node->start(%params);
}

# Lines of the shim, each as an array, of writes to segments since the last call.
sub writes
{
	my @lines = map { [split] } grep { m{^write .*/pg_wal/[0-9A-F]{24} } } split /\n/, -e "$dir/log" ? slurp_file("$dir/log") : '';

	unlink "$dir/log";
	return @lines;
}

sub trials
{
	return scalar grep { m{^open .*xlogtemp\.direct} } split /\n/, -e "$dir/log" ? slurp_file("$dir/log") : '';
}

sub refused
{
	my $node = new_wal_node('refused', disk => 1, method => 'open_direct');
	my $offset = 0;
	my ($rc, $err);

	for my $fault (qw(no_open no_write align silent))
	{
		fault($fault);
		is(start_shimmed($node, fail_ok => 1), 0, "$fault: no start");
		my $log = slurp_file($node->logfile, $offset);
		like($log, qr/FATAL:  $message/, "$fault: FATAL says why");
		like($log, $units, '... names the mount');
		like($log, $hint, '... and says what to do');
		is_deeply([ glob $node->data_dir . '/pg_wal/xlogtemp*' ], [], 'nothing is left in pg_wal');
		$offset = log_offset($node);
	}

	fault('no_open');
	$node->adjust_conf('postgresql.conf', 'wal_sync_method', 'fdatasync');
	start_shimmed($node);
	method_is_refused($node, 'open_direct', $message, $units, $hint);

	# what was wrong is mended
	fault(undef);
	$node->reload;
	$node->poll_query_until('postgres', q{SELECT setting = 'open_direct' FROM pg_settings WHERE name = 'wal_sync_method'});
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (1)');
	$node->stop;

	fault('full_trial');
	start_shimmed($node);
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (2)');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 3, 'a full disk is no reason to refuse');
	$node->reload;
	is($node->safe_psql('postgres', 'SHOW wal_sync_method'), 'open_direct', '... at a reload, if it is in use');
	$node->adjust_conf('postgresql.conf', 'wal_sync_method', 'fdatasync');
	$node->reload;
	$node->poll_query_until('postgres', q{SELECT setting = 'fdatasync' FROM pg_settings WHERE name = 'wal_sync_method'});
	$offset = log_offset($node);
	$node->adjust_conf('postgresql.conf', 'wal_sync_method', 'open_direct');
	$node->reload;
	$node->wait_for_log(qr/$message.*No space left on device/s, $offset);
	is($node->safe_psql('postgres', 'SHOW wal_sync_method'), 'fdatasync', '... but to begin with it is');
	fault(undef);
	$node->stop;
	return;
}

# Of all processes that learn of the setting, one tries; the system logger,
# which has no shared memory, lives through it.
sub one_trial
{
	my $node = new_wal_node('trial', disk => 1, method => 'fdatasync', conf => "logging_collector = on\n");
	my @sessions;

	start_shimmed($node);
	push @sessions, $node->background_psql('postgres') for 1 .. 3;
	my $logger = sub { `pgrep -P $node->{_pid} -f logger` };
	my $before = $logger->();
	writes();
	switch_method($node, 'open_direct');
	for my $session (@sessions)
	{
		$session->query_safe('SELECT 1');
		is($session->query_safe('SHOW wal_sync_method'), 'open_direct', 'an old session has it');
		$session->quit;
	}
	# the logger cannot see what the postmaster has found
	cmp_ok(trials(), '>=', 1, 'it was tried');
	cmp_ok(trials(), '<=', 2, 'once, and by the system logger');
	is($logger->(), $before, 'the system logger goes on');
	like($before, qr/\d/, '(there is one)');
	$node->stop;
	return;
}

sub basic
{
	my $node = new_wal_node('basic', disk => 1, method => 'open_direct', segsize => 1,
		conf => "max_wal_size = 64MB\nmin_wal_size = 2MB\nwal_level = minimal\nmax_wal_senders = 0\n");
	my ($start, $end, $out, $err, @writes);

	start_shimmed($node);
	like($node->safe_psql('postgres', q{SELECT enumvals FROM pg_settings WHERE name = 'wal_sync_method'}),
		qr/\bopen_direct\b/, 'it is among the values');
	writes();
	$start = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	$node->safe_psql('postgres', 'CREATE TABLE t (id int PRIMARY KEY, filler text)');
	$node->safe_psql('postgres', q{INSERT INTO t SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, 4000) g});
	$end = $node->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');
	@writes = writes();
	cmp_ok(scalar @writes, '>', 0, 'WAL is written');
	is(scalar(grep { $_->[5] != DIRECT } @writes), 0, 'all of it with O_DIRECT and O_DSYNC');
	is(scalar(grep { $_->[2] % 8192 || $_->[3] % 8192 } @writes), 0, 'in pages');
	($out, $err) = read_wal($node, $start, $end);
	like($out, qr/COMMIT/, 'pg_waldump reads it');
	unlike($err, qr/error/, '... up to the flushed location');

	# recycled segments, and new ones of both kinds
	for my $zero (qw(on off))
	{
		$node->adjust_conf('postgresql.conf', 'wal_init_zero', $zero);
		$node->adjust_conf('postgresql.conf', 'wal_recycle', $zero);
		$node->reload;
		$node->safe_psql('postgres',
			q{UPDATE t SET filler = filler || 'x'; CHECKPOINT; SELECT pg_switch_wal()}) for 1 .. 4;
		# wal_level = minimal: this goes to the data files only
		$node->safe_psql('postgres', "CREATE TABLE minimal_$zero AS SELECT generate_series(1, 10000) AS id");
		kill_all($node);
		start_shimmed($node);
		is($node->safe_psql('postgres', "SELECT count(*), min(length(filler)) FROM t"),
			$zero eq 'on' ? '4000|964' : '4000|968', "wal_init_zero and wal_recycle $zero: all there after a crash");
		is($node->safe_psql('postgres', "SELECT count(*) FROM minimal_$zero"), 10000, 'and what is not in WAL');
	}

	my $session = $node->background_psql('postgres');
	my $io = q{SELECT sum(writes), sum(write_bytes), coalesce(sum(fsyncs), 0)
		FROM pg_stat_get_backend_io(pg_backend_pid()) WHERE object = 'wal' AND context = 'normal'};
	$session->query_safe('INSERT INTO t VALUES (-1)');
	$session->query_safe('SELECT pg_stat_force_next_flush()');
	my @before = split /\|/, $session->query_safe($io);
	$session->query_safe("INSERT INTO t VALUES (-1 - $_)") for 1 .. 50;
	$session->query_safe('SELECT pg_stat_force_next_flush()');
	my @after = split /\|/, $session->query_safe($io);
	cmp_ok($after[0] - $before[0], '>=', 50, 'pg_stat_io: a write for each commit');
	cmp_ok($after[1] - $before[1], '>=', 50 * 8192, 'pg_stat_io: of pages');
	is($after[2] - $before[2], 0, 'pg_stat_io: no fsync');
	$session->quit;
	$node->stop;

	# An unpatched server takes over.
	my $vanilla = vanilla_install();
  SKIP:
	{
		skip 'no unpatched installation', 1 if !defined $vanilla;
		$node->adjust_conf('postgresql.conf', 'wal_sync_method', 'fdatasync');
		with_install($node, $vanilla,
			sub {
				$node->start;
				$node->safe_psql('postgres', q{INSERT INTO t VALUES (0, 'y')});
				$node->stop('immediate');
			});
		$node->adjust_conf('postgresql.conf', 'wal_sync_method', 'open_direct');
		$node->start;
		is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 4052, 'an unpatched server goes on, and back');
		$node->stop;
	}
	return;
}

# A bulk load through few WAL buffers: pages are gathered, also where the
# buffers begin again.
sub gathers
{
	my $node = new_wal_node('gathers', disk => 1, method => 'open_direct',
		conf => "wal_buffers = 128kB\nwal_writer_delay = 10s\nmax_wal_size = 1GB\n");
	my (%per_mb, $offset);

	PCache::add_pool($node, mode => 'always', size => '128MB') if has_cache();
	start_shimmed($node);
	$node->safe_psql('postgres', 'CREATE TABLE t (id int, filler text)');
	for my $method (qw(open_datasync open_direct))
	{
		switch_method($node, $method);
		my $session = $node->background_psql('postgres');
		my $before = lsn_number($session->query_safe('SELECT pg_current_wal_insert_lsn()'));
		writes();
		$session->query_safe(q{INSERT INTO t SELECT g, repeat('x', 900) FROM generate_series(1, 10000) g});
		my $bytes = lsn_number($session->query_safe('SELECT pg_current_wal_insert_lsn()')) - $before;
		my @writes = writes();
		my $split = grep { $_->[4] == 2 } @writes;

		$per_mb{$method} = @writes / ($bytes / 1024 / 1024);
		note "$method: $per_mb{$method} writes per MB, " . scalar(@writes) . " in all, $split of two pieces";
		cmp_ok($bytes, '>', 8 * 1024 * 1024, "$method: there is much WAL");
		cmp_ok($split, '>', @writes / 4, 'writes go on at the first buffer') if $method eq 'open_direct';
		$session->quit;
	}
	cmp_ok($per_mb{open_direct}, '<', $per_mb{open_datasync} / 4, 'open_direct needs much fewer writes');
	# its worker notes what was written last, and the start looks whether that is there
	has_cache() ? kill_seen($node) : kill_all($node);
	$offset = log_offset($node);
	$node->start;
  SKIP:
	{
		skip 'built without the cache', 1 if !has_cache();
		is(start_outcome($node, $offset)->{start}, 'warm', 'a cache in mode always is warm after a crash');
	}
	is($node->safe_psql('postgres', q{SELECT count(*), count(*) FILTER (WHERE filler = repeat('x', 900)) FROM t}),
		'20000|20000', 'all there after a crash');
	$node->stop;
	return;
}

# Others insert into the last page while it is written.  The bytes of the write
# must not change, because file systems and devices compute checksums of them.
sub stable
{
	my $node = new_wal_node('stable', disk => 1, method => 'open_direct');
	my $changed;

	start_shimmed($node);
	$node->safe_psql('postgres', 'CREATE TABLE t (id int, filler text)');
	fault('checksums');
	writes();
	$node->pgbench('--no-vacuum --client=8 --transactions=100', 0, [qr{processed: 800/800}], [qr{^$}],
		'inserts while WAL is written', { insert => q{INSERT INTO t VALUES (1, repeat('x', 100))} });
	$changed = () = slurp_file("$dir/log") =~ /^changed /mg;
	fault(undef);
	cmp_ok(scalar(writes()), '>', 50, 'there were many writes');
	is($changed, 0, 'the bytes of a write do not change while it is under way');
	$node->stop('immediate');
	start_shimmed($node);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 800, '... and all is there after a crash');
	$node->stop;
	return;
}

# Writes that are too short, or interrupted.
sub difficult
{
	my $node = new_wal_node('difficult', disk => 1, method => 'open_direct', segsize => 1,
		conf => "wal_buffers = 64kB\nwal_writer_delay = 10s\nmax_wal_size = 8MB\nmin_wal_size = 2MB\nrestart_after_crash = off\n");
	my (@writes, $log);

	start_shimmed($node);
	$node->safe_psql('postgres', 'CREATE TABLE t (id int, filler text)');
	fault('short');
	writes();
	$node->safe_psql('postgres', q{INSERT INTO t SELECT g, repeat(md5(g::text), 20) FROM generate_series(1, 5000) g});
	@writes = writes();
	cmp_ok(scalar(grep { $_->[6] > 0 && $_->[6] < $_->[3] } @writes), '>', 50, 'many writes were short');
	cmp_ok(scalar(grep { $_->[6] > 0 && $_->[6] % 8192 } @writes), '>', 50, '... ended in a page');
	cmp_ok(scalar(grep { $_->[6] < 0 } @writes), '>', 20, '... or were interrupted');
	is(scalar(grep { $_->[2] % 8192 || $_->[3] % 8192 } @writes), 0, 'all begin and end at a page');
	kill_all($node);
	fault(undef);
	$node->start;
	is($node->safe_psql('postgres', q{SELECT count(*) FROM t WHERE filler = repeat(md5(id::text), 20)}), 5000,
		'all there after a crash');
	$node->stop;

	for my $case ([ 'futile', qr/No space left on device/ ], [ 'full', qr/No space left on device/ ], [ 'no_write', qr/Invalid argument.*HINT:  If the file system no longer allows direct I\/O, choose another "wal_sync_method"/s ])
	{
		my ($fault, $reason) = @$case;
		my $offset = log_offset($node);

		start_shimmed($node);
		$node->safe_psql('postgres', "INSERT INTO t VALUES (0, '$fault')");
		fault($fault);
		isnt($node->psql('postgres', "INSERT INTO t VALUES (-1, '$fault')"), 0, "$fault: the commit fails");
		PCache::wait_for_death($node->{_pid});
		$node->{_pid} = undef;
		unlink $node->data_dir . '/postmaster.pid';
		$log = slurp_file($node->logfile, $offset);
		like($log, qr/PANIC:  could not write to log file "\w+" at offset \d+, length \d+: $reason/, '... with a PANIC');
		fault(undef);
		$node->start;
		is($node->safe_psql('postgres', "SELECT count(*) FROM t WHERE id = 0 AND filler = '$fault'"), 1, 'what was committed before is there');
		$node->stop;
	}
	return;
}

sub switching
{
	my $node = new_wal_node('switching', disk => 1, segsize => 1, method => 'fdatasync',
		conf => "max_wal_size = 8MB\nmin_wal_size = 2MB");
	my @methods = qw(open_direct fdatasync open_direct open_datasync open_direct open_sync open_direct);
	my $script = $node->basedir . '/insert.sql';
	my ($out, $err);

	append_to_file($script, "INSERT INTO t (client) VALUES (:client_id);\n");
	$node->start;
	$node->safe_psql('postgres', 'CREATE TABLE t (id bigserial PRIMARY KEY, client int)');
	for my $i (0 .. $#methods)
	{
		my $pgbench = IPC::Run::start(
			[ 'pgbench', '-n', '-c', 4, '-T', 600, '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
			'>', \$out, '2>', \$err);
		switch_method($node, $methods[$i]);

		my $n = $node->safe_psql('postgres', 'SELECT count(*) FROM t');
		$node->poll_query_until('postgres', "SELECT count(*) > $n + 200 FROM t");
		my $acked = $node->safe_psql('postgres', 'SELECT count(*) FROM t');
		$i % 2 ? kill_all($node) : $node->stop('immediate');
		IPC::Run::finish($pgbench);
		$node->start;
		cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM t'), '>=', $acked,
			"switched to $methods[$i] under load, crashed, nothing visible before is lost");
	}
	$node->stop;
	return;
}

# fsync is switched on while a segment is open that was opened without it: the
# next flush must be a sync, and direct writes follow with the next segment.
sub without_fsync
{
	my $node = new_wal_node('nofsync', disk => 1, method => 'open_direct', conf => "wal_writer_delay = 10s\n");
	my ($session, @writes, $syncs);

	$node->adjust_conf('postgresql.conf', 'fsync', 'off');
	start_shimmed($node);
	$session = $node->background_psql('postgres');
	writes();
	$session->query_safe('CREATE TABLE t (id int)');
	@writes = writes();
	is(scalar(grep { $_->[5] != 0 } @writes), 0, 'fsync = off: nothing is direct or synced');
	$node->adjust_conf('postgresql.conf', 'fsync', 'on');
	$node->reload;
	$node->poll_query_until('postgres', q{SELECT setting = 'on' FROM pg_settings WHERE name = 'fsync'});
	$session->query_safe('SELECT 1');
	$session->query_safe("INSERT INTO t VALUES ($_)") for 1 .. 5;
	$session->query_safe('SELECT pg_stat_force_next_flush()');
	$syncs = $session->query_safe(q{SELECT coalesce(sum(fsyncs), 0) FROM pg_stat_get_backend_io(pg_backend_pid()) WHERE object = 'wal' AND context = 'normal'});
	cmp_ok($syncs, '>=', 5, 'fsync = on: what was opened before is synced');
	$session->query_safe('SELECT pg_switch_wal()');
	writes();
	$session->query_safe('INSERT INTO t VALUES (0)');
	@writes = writes();
	is(scalar(grep { $_->[5] != DIRECT } @writes), 0, 'the next segment is written directly');
	$session->quit;
	kill_all($node);
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 6, 'all there after a crash');
	$node->stop;
	return;
}

# The first segment is written by the bootstrap.
sub initdb_option
{
	my $node = PostgreSQL::Test::Cluster->new('initdb');

	$node->init(force_initdb => 1, extra => [ '--set', 'wal_sync_method=open_direct', '--set', 'fsync=on' ]);
	$node->start;
	is($node->safe_psql('postgres', 'SHOW wal_sync_method'), 'open_direct', 'initdb --set wal_sync_method=open_direct');
	$node->stop;
	return;
}

sub test_fsync
{
	my ($out, $err) = run_command([ 'pg_test_fsync', '-s', 1, '-f', "$dir/test_fsync" ]);

	is(scalar(() = $out =~ /^\s+open_direct\s+[\d.]+ ops\/sec/mg), 2, 'pg_test_fsync measures open_direct');
	return;
}
