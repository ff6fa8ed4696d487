
# Copyright (c) 2026, the persistent-cache developers

# Mode always: what was sealed is kept over any crash of the server, under load
# and at rest, and a crash while a start takes up the pool makes the next cold.

use strict;
use warnings FATAL => 'all';

use IPC::Run qw();
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $sums = q{SELECT (SELECT sum(bbalance) FROM pgbench_branches),
  (SELECT sum(tbalance) FROM pgbench_tellers),
  (SELECT sum(abalance) FROM pgbench_accounts),
  (SELECT sum(delta) FROM pgbench_history)};
my $attaching = qr/^the last start did not reach a consistent state, or pg_pcache was interrupted/;

run_all('plain');
{
	# the code paths of persistent memory
	local $ENV{PMEM_IS_PMEM_FORCE} = '1';
	run_all('forced');
}
done_testing();

sub run_all
{
	my ($variant) = @_;
	my $node = new_node("main_$variant",
		mode => 'always', shared_buffers => '128MB',
		conf => "restart_after_crash = on\nsynchronous_commit = on\nwal_level = replica");
	my ($offset, $expected, $valid, $outcome);

	$node->start;
	load_data($node);
	$node->command_ok([ 'pgbench', '-i', '-q', '-s', 1, 'postgres' ], "$variant: pgbench -i");
	$node->safe_psql('postgres', 'CHECKPOINT');
	$expected = checksums($node, tables => [LOGGED]);

	# Under pgbench: all of it fits, so nothing is evicted, and ring reads are
	# followed by ordinary ones.
	for my $case ([ 'stop immediate', sub { $node->stop('immediate') } ],
		[ 'kill -9 of all', sub { kill_all($node) } ],
		[ 'kill -9 of all in a checkpoint', sub {
			my $psql = $node->background_psql('postgres', on_error_stop => 0);
			$psql->{stdin} .= "CHECKPOINT;\n";
			$psql->{run}->pump_nb;
			select undef, undef, undef, 0.1;
			kill_all($node);
			eval { $psql->quit };
		} ])
	{
		my ($name, $crash) = @$case;

		$name = "$variant: $name under pgbench";
		prewarm($node);
		my $pgbench = IPC::Run::start(
			[ 'pgbench', '-n', '-c', 4, '-T', 60, '-h', $node->host, '-p', $node->port, 'postgres' ],
			'<' => \undef, '>' => \my $out, '2>' => \my $err);
		select undef, undef, undef, 4;
		$valid = permanent_buffers($node);
		$crash->();
		IPC::Run::finish($pgbench);
		$outcome = warm_after_crash($node, $valid, $name, ratio => 0.98);
		check_sums($node, $name);
		is(checksums($node, tables => [LOGGED]), $expected, "$name: contents are right");
		$node->safe_psql('postgres', 'CHECKPOINT');
		pages_equal_disk($node, $name);
	}

	# At rest nothing is lost.
	for my $case ([ 'stop immediate', sub { $node->stop('immediate') } ],
		[ 'kill -9 of all', sub { kill_all($node) } ])
	{
		my ($name, $crash) = @$case;

		$name = "$variant: $name at rest";
		prewarm($node);
		$node->command_ok([ 'pgbench', '-n', '-t', 200, '-c', 2, 'postgres' ], "$name: pgbench");
		$valid = permanent_buffers($node);
		wait_for_seals();
		$crash->();
		$outcome = warm_after_crash($node, $valid, $name);
		is_deeply([ grep { $_ ne 'unlogged' } keys %{ $outcome->{dropped} } ],
			[], "$name: nothing was dropped");
		check_sums($node, $name);
		is(checksums($node, tables => [LOGGED]), $expected, "$name: contents are right");
		is(relation_reads($node, 'SELECT sum(abalance) FROM pgbench_accounts'),
			0, "$name: the big table is read from the cache");
	}

	# A crash of one process.  The checkpointer's is one of the whole server,
	# the sealer's is not, unless it is killed.
	for my $victim ('client backend', 'persistent cache sealer', 'checkpointer')
	{
		my $name = "$variant: kill -9 of a $victim";
		my $psql = $node->background_psql('postgres', on_error_stop => 0);
		my ($pid, $postmaster);

		prewarm($node);
		$pid = $victim eq 'client backend'
		  ? $psql->query_safe('SELECT pg_backend_pid()')
		  : $victim =~ /sealer/ ? sealer_pid($node)
		  : $node->safe_psql('postgres',
			"SELECT pid FROM pg_stat_activity WHERE backend_type = '$victim'");
		$valid = permanent_buffers($node);
		wait_for_seals();
		$offset = log_offset($node);
		kill 'KILL', $pid;
		$node->wait_for_log(qr/persistent cache: starting|persistent cache: kept/, $offset);
		wait_until_back($node);
		eval { $psql->quit };
		$outcome = start_outcome($node, $offset);
		is($outcome->{start}, 'warm', "$name: warm start")
		  or diag($outcome->{reason} // 'no word of it');
		cmp_ok($outcome->{kept} // 0, '>=', $valid, "$name: kept all of $valid");
		check_sums($node, $name);
		is(checksums($node, tables => [LOGGED]), $expected, "$name: contents are right");
	}

	# A sealer that is told to end is started again.
	my $sealer = sealer_pid($node);
	kill 'TERM', $sealer;
	for (1 .. 100)
	{
		last if (sealer_pid($node) || $sealer) != $sealer;
		select undef, undef, undef, 0.1;
	}
	isnt(sealer_pid($node), $sealer, "$variant: the sealer is started again");
	$node->safe_psql('postgres', 'UPDATE t_heap SET filler = filler WHERE id <= 3000');
	prewarm($node);
	$valid = permanent_buffers($node);
	wait_for_seals();
	kill_all($node);
	warm_after_crash($node, $valid, "$variant: the new sealer seals");
	is(checksums($node, tables => [LOGGED]), $expected, "$variant: the new sealer seals: contents are right");

	# Crash, crash, crash: each time from what is kept.
	for my $round (1 .. 3)
	{
		$node->safe_psql('postgres', "UPDATE t_heap SET grp = grp + 1 WHERE id % 11 = $round");
		$expected = checksums($node, tables => [LOGGED]);
		prewarm($node);
		$valid = permanent_buffers($node);
		wait_for_seals();
		kill_all($node);
		warm_after_crash($node, $valid, "$variant: crash $round in a row");
		is(checksums($node, tables => [LOGGED]), $expected, "$variant: crash $round in a row: contents are right");
	}

	# And the clean stop is as warm as ever.
	restart_warm($node, "$variant: clean stop");
	is(checksums($node, tables => [LOGGED]), $expected, "$variant: clean stop: contents are right");
	pages_equal_disk($node, "$variant: clean stop");

  SKIP:
	{
		skip 'no injection points', 1 if ($ENV{enable_injection_points} // '') ne 'yes';
		my $name = "$variant: crash while attaching";
		my $conf = slurp_file($node->data_dir . '/postgresql.conf');

		prewarm($node);
		kill_all($node);
		$node->append_conf('postgresql.conf', qq{
shared_preload_libraries = 'pcache_inject'
pcache_inject.crash_at = 'persistent-cache-attaching'
restart_after_crash = off});
		like(start_and_fail($node, $name), qr/persistent cache: kept.*dies at injection point/s,
			"$name: it came to that");
		is(status_json($node)->{state}, 'attaching', "$name: state of the pool");
		unlink $node->data_dir . '/postgresql.conf';
		append_to_file($node->data_dir . '/postgresql.conf', $conf);
		chmod 0600, $node->data_dir . '/postgresql.conf';
		cold_after_crash($node, 'attaching', $attaching, $name);
		is(checksums($node, tables => [LOGGED]), $expected, "$name: contents are right");
		check_sums($node, $name);
		prewarm($node);
		$valid = permanent_buffers($node);
		wait_for_seals();
		kill_all($node);
		warm_after_crash($node, $valid, "$name, then another crash");
		is(checksums($node, tables => [LOGGED]), $expected, "$name, then another crash: contents are right");
	}
	$node->stop;
	return;
}

# All that is in the tables into shared buffers, by ordinary reads.
sub prewarm
{
	my ($node) = @_;

	warm_up($node);
	$node->safe_psql('postgres', q{
SELECT sum(pg_prewarm(oid::regclass)) FROM pg_class WHERE relname LIKE 'pgbench%' AND relkind IN ('r', 'i')});
	return;
}

sub check_sums
{
	my ($node, $name) = @_;
	my @all = split /\|/, $node->safe_psql('postgres', $sums);

	is(scalar(grep { ($_ || 0) ne ($all[0] || 0) } @all), 0, "$name: the sums are right (@all)");
	return;
}

# The sealer, by what ps would say.
sub sealer_pid
{
	my ($node) = @_;

	for my $file (glob '/proc/[0-9]*/cmdline')
	{
		my $line = eval { slurp_file($file) } // next;
		my ($pid) = $file =~ /(\d+)/;

		next if $line !~ /persistent cache sealer/;
		return $pid
		  if (eval { slurp_file("/proc/$pid/stat") } // '') =~ /^\d+ \(.*\) \S+ $node->{_pid} /s;
	}
	return 0;
}
