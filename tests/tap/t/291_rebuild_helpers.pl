
# Copyright (c) 2026, the persistent-cache developers

# The startup process shares the rebuild of the mapping table with helpers.
# Whatever becomes of them, the start keeps what it keeps without them.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

need_inject_module();

my $helpers = 2;
my $given_up = qr/LOG:  persistent cache: the start was given up, because the server is to be stopped/;
my $heat_sql = 'SELECT sum(usagecount) FROM pg_buffercache WHERE relfilenode >= 16384';
my ($expected, $valid, $offset, $outcome, $log);

for my $mode (qw(planned_restart always))
{
	my $node = new_node($mode, mode => $mode, shared_buffers => '64MB', conf => qq{
persistent_cache_workers = $helpers
max_worker_processes = 8});

	$node->start;
	load_data($node);
	$node->safe_psql('postgres', q{
CREATE TABLE more WITH (fillfactor = 10) AS
	SELECT i, repeat('x', 400) AS filler FROM generate_series(1, 5000) i});
	$expected = checksums($node);

	# They do it all, but for the first chunk; they are at work when nothing is
	# left to be claimed; they fail in their first chunk; they are told to end in it,
	# and end after it.
	for my $what (qw(gone busy fail told))
	{
		my $name = "$mode, helpers $what";
		my $all;

		warm_up($node);
		$node->safe_psql('postgres', q{SELECT pg_prewarm('more')});
		my $heat = $node->safe_psql('postgres', $heat_sql);
		$node->stop;
		$all = verify_json($node)->{pages}{kept};
		cmp_ok($all, '>', 3 * 1024, "$name: more than three chunks of slots hold pages");
		($outcome, $log) = start_with($node, $what);
		is($outcome->{kept}, $all, "$name: all pages are kept");
		is($node->safe_psql('postgres', $heat_sql), $heat, "$name: with their usage counts");
		if ($what eq 'gone')
		{
			cmp_ok(told($log), '>', 0, "$name: the log tells of one that kept pages");
		}
		else
		{
			is(told($log), $what eq 'fail' ? 0 : $helpers, "$name: the log tells how many kept pages");
		}
		($what eq 'fail' ? \&like : \&unlike)->($log,
			qr/LOG:  persistent cache: a helper has failed, so the rebuild .* begins anew without helpers/,
			"$name: it begins anew only if one fails");
		is(() = $log =~ /ERROR:  pcache_inject: PID \d+ fails/g, $what eq 'fail' ? $helpers : 0,
			"$name: as many fail as should");
		is(checksums($node), $expected, "$name: contents are right");
		is($node->safe_psql('postgres', 'SELECT count(*), sum(i), sum(length(filler)) FROM more'),
			'5000|12502500|2000000', "$name: those of a larger table, too");
		pages_equal_disk($node, $name);
	}

	# Two slots that claim a page, whoever meets them.
	warm_up($node);
	$node->stop;
	my $pool = pool_file($node);
	my @slots = sealed_slots($pool, sub { $_[0]->{fork_number} == 0 });
	my $all = verify_json($node)->{pages}{kept};
	for my $pair ([ 0, -1 ], [ 1, 2 ], [ int(@slots / 2), -2 ], [ int(@slots / 2), -3 ])
	{
		my ($from, $to) = @slots[@$pair];
		my $twin = read_descriptor($pool, $from);
		write_descriptor($pool, $to, map { $_ => $twin->{$_} }
			  qw(spc_oid db_oid rel_number fork_number block_number flags page_lsn));
	}
	is(verify_json($node)->{pages}{duplicate}, 7, "$mode, twins: pg_pcache verify counts them");
	# without the pool's superblock, so that the next start sees them again
	my $twins = slurp_file($pool);
	my %state = map { $_ => slurp_file($node->data_dir . "/$_") } qw(global/pg_control pg_pcache.state);
	for my $what (qw(busy fail told gone))
	{
		($outcome) = start_with($node, $what);
		is_deeply($outcome->{dropped}, { duplicate => 7 }, "$mode, twins, helpers $what: exactly these are dropped");
		is($outcome->{kept}, $all - 7, "$mode, twins, helpers $what: the others are kept");
		last if $what eq 'gone';
		is(checksums($node), $expected, "$mode, twins, helpers $what: contents are right");
		pages_equal_disk($node, "$mode, twins, helpers $what");
		$node->stop('immediate');
		write_bytes($pool, 0, $twins);
		write_bytes($node->data_dir . "/$_", 0, $state{$_}) for keys %state;
	}
	is(checksums($node), $expected, "$mode, twins: contents are right");
	pages_equal_disk($node, "$mode, twins");

	# Pages that are kept dirty.
	if ($mode eq 'always')
	{
		$node->stop;
		set_helpers($node, 'gone');
		$node->start;
		($expected, $valid) = change_and_crash($node);
		$offset = log_offset($node);
		warm_after_crash($node, $valid, "$mode, crash");
		cmp_ok(told(slurp_file($node->logfile, $offset)), '>', 0, "$mode, crash: helpers kept pages");
		contents_right($node, $expected, "$mode, crash");
		$expected = checksums($node);
	}

	# A server that is stopped while the startup process waits for them.
	warm_up($node);
	$node->stop;
	$all = verify_json($node)->{pages}{kept};
	$offset = log_offset($node);
	set_helpers($node, 'stuck');
	start_nowait($node);
	$node->wait_for_log(qr/is stuck in a chunk/, $offset);
	$node->stop('fast');
	$log = slurp_file($node->logfile, $offset);
	like($log, $given_up, "$mode, stop: the start is given up");
	unlike($log, qr/FATAL|PANIC|WARNING/, "$mode, stop: which is no failure");
	is(verify_json($node)->{pages}{kept}, $all, "$mode, stop: the pool is as it was");
	set_helpers($node, '');
	$node->start;
	is(checksums($node), $expected, "$mode, stop: contents are right");

	# The postmaster starts no helper after the crash of a backend.
	if ($mode eq 'always')
	{
		$node->append_conf('postgresql.conf', 'restart_after_crash = on');
		$node->reload;
		$offset = log_offset($node);
		kill 'KILL', $node->safe_psql('postgres', 'SELECT pid FROM pg_stat_activity WHERE backend_type = \'walwriter\'');
		wait_until_back($node);
		$log = slurp_file($node->logfile, $offset);
		is(told($log), 0, "$mode, crash of a process: no helpers");
		is(start_outcome($node, $offset)->{start}, 'warm', "$mode, crash of a process: warm");
		is(checksums($node), $expected, "$mode, crash of a process: contents are right");
	}
	$node->stop;

	# A helper that is killed takes the start with it, as any child does.
	$offset = log_offset($node);
	$node->append_conf('postgresql.conf', 'restart_after_crash = off');
	set_helpers($node, 'kill');
	start_and_fail($node, "$mode, kill");
	like(slurp_file($node->logfile, $offset), qr/dies at injection point "persistent-cache-mapping"/,
		"$mode, kill: a helper is killed");
	set_helpers($node, '');
	$node->start;
	is(checksums($node), $expected, "$mode, kill: contents are right");
	restart_warm($node, "$mode, kill, then a clean stop");
	$node->stop;
}

# Without worker processes the startup process is alone, and says so.
my $node = new_node('alone', conf => q{
persistent_cache_workers = 3
max_worker_processes = 1
max_parallel_workers = 0});
$node->start;
load_data($node);
$expected = checksums($node);
warm_up($node);
$offset = log_offset($node);
$node->restart;
$log = slurp_file($node->logfile, $offset);
like($log, qr/LOG:  persistent cache: only [01] of 3 helpers can be started, because there are too few worker processes/,
	'too few worker processes: it is said');
like($log, qr/HINT:  .*max_worker_processes/, 'too few worker processes: with a hint');
is(start_outcome($node, $offset)->{start}, 'warm', 'too few worker processes: warm');
is(checksums($node), $expected, 'too few worker processes: contents are right');

# No helper is worth its start for a small pool, unless asked for.
for my $workers (2, -1)
{
	$node->append_conf('postgresql.conf', qq{
persistent_cache_workers = $workers
max_worker_processes = 8
log_min_messages = debug1});
	$offset = log_offset($node);
	$node->restart;
	$log = slurp_file($node->logfile, $offset);
	is(() = $log =~ /starting background worker process "persistent cache rebuild"/g, $workers == 2 ? 2 : 0,
		"a small pool, $workers: " . ($workers == 2 ? 'as many helpers as asked for' : 'no helpers'));
}
$node->stop;

done_testing();

# Of how many helpers does the last start tell?
sub told
{
	my ($text) = @_;
	my @numbers = $text =~ /persistent cache: kept [^\n]*, helpers: (\d+)/g;

	return $numbers[-1];
}

sub set_helpers
{
	my ($who, $what) = @_;

	$who->append_conf('postgresql.conf', qq{
shared_preload_libraries = 'pcache_inject'
pcache_inject.helpers = '$what'});
	return;
}

# Start a server, and have that become of its helpers: outcome and log.
sub start_with
{
	my ($who, $what) = @_;
	my $from = log_offset($who);

	set_helpers($who, $what);
	$who->start;
	return (start_outcome($who, $from), slurp_file($who->logfile, $from));
}
