
# Copyright (c) 2026, the persistent-cache developers

# A pool that cannot be used costs no start: the server runs without it, says why
# in its log, in the view and in each forecast, and its next start with the pool is
# cold.  persistent_cache_required = on refuses instead, and costs nothing.

use strict;
use warnings FATAL => 'all';

use Fcntl qw(:flock);
use File::Path qw(remove_tree);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_inject_module();
plan skip_all => 'root may read and write everywhere' if $> == 0;

my ($node, $pool, $expected, $mode);

# What the view tells of the last start.
sub view
{
	return $node->safe_psql('postgres', q{
		SELECT last_start, last_start_reason, pool IS NULL, last_start_detail FROM pg_pcache_pool});
}

# Without what a crash empties.
sub contents
{
	return checksums($node, tables => [LOGGED]);
}

sub require_pool
{
	my ($required) = @_;
	$node->adjust_conf('postgresql.conf', 'persistent_cache_required', $required);
	return;
}

# A server that runs without its pool: all who can be asked give the reason.
sub runs_without
{
	my ($offset, $reason, $name) = @_;
	my $log = slurp_file($node->logfile, $offset);

	like($log, qr/WARNING:  [^\n]*$reason/, "$name: the log gives the reason");
	like(view(), qr/^unavailable\|unavailable\|t\|.*$reason/s, "$name: so does the view");
	is(contents(), $expected, "$name: contents are right");
	is($node->safe_psql('postgres', 'SELECT pg_pcache_seal() IS NULL, (SELECT sealer_pid IS NULL FROM pg_stat_pcache)'),
		't|t', "$name: there is no sealer's work");
	cmp_ok($node->safe_psql('postgres', 'SELECT sum(buffers) FROM pg_pcache_relations'), '>', 0,
		"$name: it has buffers");
	is($node->safe_psql('postgres', q{SELECT count(DISTINCT bufferid) - setting::int FROM pg_buffercache,
		pg_settings WHERE name = 'shared_buffers' GROUP BY setting}), 0, "$name: all of them have headers");
	return;
}

# Break the set-up of a warm pool, start, crash and stop without the pool, mend.
sub unavailable
{
	my ($name, $reason, $break, $mend, %opt) = @_;
	my ($offset, $verdict);

	$name = "$mode: $name";
	$node->start;
	warm_up($node);
	$node->stop;
	$break->();

	require_pool('off');
	if (!$opt{unforetold})
	{
		$verdict = verify_json($node);
		is("$verdict->{rc} $verdict->{reason}", '2 unavailable', "$name: pg_pcache verify says unavailable");
		like($verdict->{detail}, $reason, "$name: for the right reason");
	}
	require_pool('on');
	start_fails($node, qr/FATAL:  [^\n]*$reason/, "$name, required");
	require_pool('off');

	$offset = log_offset($node);
	$node->start;
	runs_without($offset, $reason, $name);
	if (!$opt{unforetold})
	{
		like($node->safe_psql('postgres', 'SELECT * FROM pg_pcache_next_start()'),
			qr/^f\|unavailable\|.*$reason/s, "$name: pg_pcache_next_start() says so");
		like((pcache($node, 'check'))[1], qr/COLD.*$reason/s, "$name: pg_pcache check says so");
	}

	# Changes that a pool from before does not have, and a crash on top.
	$node->safe_psql('postgres', "UPDATE t_heap SET grp = grp + 1");
	$expected = contents();
	$offset = log_offset($node);
	crash_of_backend();
	runs_without($offset, $reason, "$name, after the crash of a backend");
	$node->stop($opt{stop} // 'fast');
	$mend->();

	$offset = log_offset($node);
	$node->start;
	cold($offset, $opt{cold} // qr/run without the pool/, "$name: the pool is back");
	is(contents(), $expected, "$name: the pool is back, contents are right");
	restart_warm($node, "$name: the pool is back");
	is(contents(), $expected, "$name: warm, contents are right");
	$node->stop;
	return;
}

# Redo may have read pages of the tables already, so only the log is asked.
sub cold
{
	my ($offset, $reason, $name) = @_;
	my $outcome = start_outcome($node, $offset);

	is($outcome->{start}, 'cold', "$name: cold start");
	like($outcome->{reason}, $reason, "$name: for the right reason");
	return;
}

# SIGKILL to one backend; the server begins again by itself.
sub crash_of_backend
{
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	my $offset = log_offset($node);

	kill 'KILL', $pid;
	$node->wait_for_log(qr/all server processes terminated; reinitializing/, $offset);
	eval { $session->quit };
	wait_until_back($node);
	return;
}

foreach (qw(planned_restart always))
{
	$mode = $_;
	$node = new_node("node_$mode", mode => $mode,
		conf => "shared_preload_libraries = 'pcache_inject'\nrestart_after_crash = on");
	$pool = pool_file($node);
	my $dir = pool_dir($node);
	my $lock;

	$node->start;
	load_data($node);
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
	$expected = contents();
	$node->stop;

	unavailable('the directory of others', qr/group or others|permissions|could be changed|other users/i,
		sub { chmod 0777, $dir or die $! }, sub { chmod 0700, $dir or die $! });
	unavailable('not readable', qr/Permission denied/,
		sub { chmod 0, $pool or die $! }, sub { chmod 0600, $pool or die $! }, stop => 'immediate');
	unavailable('locked by another cluster', qr/is locked by another process/,
		sub {
			# another pool by its UUID, as seen by the record
			rename $pool, "$pool.kept" or die $!;
			append_to_file($pool, "\0" x 8192);
			chmod 0600, $pool;
			open $lock, '<', $pool or die $!;
			flock $lock, LOCK_EX or die $!;
		},
		sub { close $lock; rename "$pool.kept", $pool or die $! });
	unavailable('reads that outlive their process', qr/io_uring.*debug_io_direct/,
		sub { $node->append_conf('postgresql.conf', "io_method = io_uring\ndebug_io_direct = data") },
		sub {
			$node->adjust_conf('postgresql.conf', 'io_method', undef);
			$node->adjust_conf('postgresql.conf', 'debug_io_direct', undef);
		});
	unavailable('bad media', qr/too many of its blocks are bad/,
		sub { $node->append_conf('postgresql.conf', q{pcache_inject.media = 'truncated'}) },
		sub { $node->adjust_conf('postgresql.conf', 'pcache_inject.media', undef) },
		unforetold => 1, cold => qr/^the data directory was last used with another pool$/);

	# The record cannot be written: the startup process finds that out.
	$node->append_conf('postgresql.conf', "persistent_cache_directory = '$dir'");
	unavailable('no record', qr/pg_pcache\.state/,
		sub { unlink state_file($node); mkdir state_file($node) or die $! },
		sub { rmdir state_file($node) or die $! },
		unforetold => 1, cold => qr/record|state|attaching|start/);

	# It does not matter whether the administrator wants restarts after a crash.
	$node->append_conf('postgresql.conf', "restart_after_crash = off\npcache_inject.media = 'truncated'");
	my $offset = log_offset($node);
	$node->start;
	runs_without($offset, qr/too many of its blocks are bad/, "$mode: restart_after_crash = off");
	like(slurp_file($node->logfile, $offset), qr/begins to start again, without the persistent cache/,
		"$mode: restart_after_crash = off, it has begun again");
	$node->adjust_conf('postgresql.conf', 'restart_after_crash', 'on');
	$node->adjust_conf('postgresql.conf', 'pcache_inject.media', undef);
	$node->stop;

	# Somebody of this cluster is at work on the pool: its work must not be lost.
	open $lock, '<', $pool or die $!;
	flock $lock, LOCK_EX or die $!;
	start_fails($node, qr/FATAL:  [^\n]*is locked by another process/, "$mode: locked by ourselves");
	is((pcache($node, 'verify'))[0], 1, "$mode: locked by ourselves, pg_pcache verify says that it does not start");
	close $lock;

	# Who only reads it loses nothing.
	open $lock, '<', $pool or die $!;
	flock $lock, LOCK_SH or die $!;
	$offset = log_offset($node);
	$node->start;
	runs_without($offset, qr/is locked by another process/, "$mode: read by ourselves");
	close $lock;
	$node->stop;

	# A pool of no use that holds memory, and no memory for a second one.
	SKIP:
	{
		my ($mb) = slurp_file('/proc/meminfo') =~ /^MemTotal: +(\d+) kB/m;
		$mb = int($mb / 1024 * 1.5);
		$node->append_conf('postgresql.conf', "shared_buffers = ${mb}MB");
		chmod 0777, $dir;
		start_fails($node, qr/FATAL:  [^\n]*; and there is no memory for ${mb} MB of buffers beside the \d+ MB that this pool holds/,
			"$mode: no memory for a second set of buffers");
		my ($rc, undef, $err) = pcache($node, 'verify');
		is($rc, 1, "$mode: no memory, pg_pcache verify says that it does not start");
		like($err, qr/there is no memory for ${mb} MB/, "$mode: no memory, and why");
		chmod 0700, $dir;
		$node->append_conf('postgresql.conf', 'shared_buffers = 32MB');
	}

	# A pool of ours that is of no use gives its memory back: the server does not
	# make one larger that has bad memory.
	$node->start;
	warm_up($node);
	$node->stop;
	my $before = (stat $pool)[12];
	my $error = pack 'QL', 12 * 1024 * 1024, 4096;
	write_bytes($pool, 12288, $error . pack('L', crc32c($error)));
	$node->append_conf('postgresql.conf', 'shared_buffers = 40MB');
	my $verdict = verify_json($node);
	is("$verdict->{rc} $verdict->{reason}", '2 unavailable', "$mode: too small, pg_pcache verify says unavailable");
	$offset = log_offset($node);
	$node->start;
	runs_without($offset, qr/is too small for "shared_buffers"/, "$mode: too small");
	cmp_ok((stat $pool)[12] * 512, '<=', 2 * 1024 * 1024 + 65536, "$mode: its memory is given back");
	cmp_ok($before * 512, '>', 32 * 1024 * 1024, "$mode: it had that memory");
	$node->stop;
	$offset = log_offset($node);
	$node->start;
	is(start_outcome($node, $offset)->{start}, 'cold', "$mode: memory given back, the next start is cold");
	is(contents(), $expected, "$mode: memory given back, contents are right");
	restart_warm($node, "$mode: memory given back, and taken again");

	# The pool comes back while the server runs: a crash decides anew.
	$node->stop;
	chmod 0777, $dir;
	$node->start;
	chmod 0700, $dir;
	$node->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1');
	$expected = contents();
	$offset = log_offset($node);
	crash_of_backend();
	cold($offset, qr/run without the pool/, "$mode: the pool comes back at a crash");
	is(contents(), $expected, "$mode: the pool comes back at a crash, contents are right");
	like(view(), qr/^cold\|/, "$mode: the pool comes back at a crash, the view says so");
	restart_warm($node, "$mode: the pool came back at a crash");
	is($node->safe_psql('postgres', 'SELECT sealer_pid IS NOT NULL FROM pg_stat_pcache'),
		$mode eq 'always' ? 't' : 'f', "$mode: and there is a sealer where there should be");
	$node->stop;
}
done_testing();
