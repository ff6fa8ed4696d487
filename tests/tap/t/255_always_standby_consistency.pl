
# Copyright (c) 2026, the persistent-cache developers

# Mode always: what queries on a standby answer after a crash, from the first
# moment on.  Kept pages are of the moment of the crash; nobody may see them
# with less than the WAL that goes with them.

use strict;
use warnings FATAL => 'all';

use IPC::Run;
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Each transaction takes from one account what it gives to another, and adds
# ten rows to the history.  So each snapshot has all accounts, a sum of 0, and a
# multiple of ten rows.
use constant ACCOUNTS => 2000;

my $waits = qr/persistent cache: recovery waits for WAL after/;
my $ready = qr/database system is ready to accept read-only connections/;

my $primary = new_node('primary', mode => undef,
	init => { has_archiving => 1, allows_streaming => 1, extra => [ '--wal-segsize' => 1 ] },
	conf => q{
wal_keep_size = 320MB
max_standby_streaming_delay = -1
max_standby_archive_delay = -1
wal_retrieve_retry_interval = 100ms});

$primary->start;
$primary->safe_psql('postgres', qq{
CREATE EXTENSION pg_buffercache;
CREATE TABLE accounts (id int PRIMARY KEY, balance int, filler text);
INSERT INTO accounts SELECT i, 0, repeat('x', 100) FROM generate_series(1, @{[ ACCOUNTS ]}) i;
CREATE TABLE history (id bigserial PRIMARY KEY)});
my $archive = $primary->archive_dir;
$primary->backup('b');

my $standby = standby_of($primary, 'standby', has_streaming => 1);

for my $case (
	[ 'alone', '' ],
	[ 'recovery_min_apply_delay', 'recovery_min_apply_delay = 1h' ])
{
	my ($name, $conf) = @$case;
	my ($least, $log, $offset);

	$primary->wait_for_replay_catchup($standby);
	$standby->safe_psql('postgres', 'CHECKPOINT');
	change($primary) for 1 .. 8;
	$primary->wait_for_replay_catchup($standby);
	crash($standby);
	$standby->append_conf('postgresql.conf', "primary_conninfo = ''\nrestore_command = 'false'\n$conf");
	$least = answer_without_pool($standby, "$name, without the pool");

	$offset = log_offset($standby);
	start_nowait($standby);
	$log = wait_for_either($standby, $ready, $waits, $offset);
	like($log, $ready, "$name: connections are allowed");
	is(start_outcome($standby, $offset)->{start}, 'warm', "$name: warm start");
	right_answers($standby, $least, $name);
	$standby->stop;
	reset_conf($standby);
	$standby->start;
	$primary->wait_for_replay_catchup($standby);
	same_as($primary, $standby, $name);
}

# A standby that has received more than it has replayed, and lags on purpose: it
# must not be dragged beyond what its pages have.  It may come back with less, as
# without the pool, if the pages of the last change were not sealed yet.
{
	my $name = 'lagging';
	my ($lagging, $least, $offset);

	$primary->wait_for_replay_catchup($standby);
	$standby->safe_psql('postgres', 'CHECKPOINT');
	change($primary) for 1 .. 2;
	$primary->wait_for_replay_catchup($standby);
	($lagging) = answer($standby) =~ /^@{[ ACCOUNTS ]}\|0\|(\d+)\n/;
	$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
	$standby->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'}) or die;
	change($primary) for 1 .. 2;
	$primary->wait_for_catchup($standby, 'flush', $primary->lsn('flush'));
	crash($standby);
	$standby->append_conf('postgresql.conf', "primary_conninfo = ''\nrestore_command = 'false'\nrecovery_min_apply_delay = 1h");
	$least = answer_without_pool($standby, "$name, without the pool");
	$offset = log_offset($standby);
	$standby->start;
	is(start_outcome($standby, $offset)->{start}, 'warm', "$name: warm start");
	cmp_ok(right_answers($standby, $least, $name), '<=', $lagging, "$name: it is not ahead of where it was");
	$standby->stop;
	reset_conf($standby);
	$standby->start;
	$primary->wait_for_replay_catchup($standby);
	same_as($primary, $standby, $name);
}

# Under load, with the primary there.
for my $round (1 .. 3)
{
	my $name = "under load, round $round";
	my $load = start_load();
	my $before;

	$primary->poll_query_until('postgres', 'SELECT count(*) > 0 FROM history') or die;
	$primary->wait_for_replay_catchup($standby);
	$standby->safe_psql('postgres', 'CHECKPOINT');
	sleep 1;
	crash($standby, 0);
	# the delay holds it where it is consistent: it is asked some time after that
	$before = answer_without_pool($standby, "$name, without the pool", "primary_conninfo = ''\nrestore_command = 'false'\nrecovery_min_apply_delay = 1h");
	start_nowait($standby);
	right_answers($standby, $before, $name, wait => 1, times => 20);
	stop_load($load);
	$primary->wait_for_replay_catchup($standby);
	same_as($primary, $standby, $name);
}

# A cascade, and both ends crashed.  The cascading one comes up alone.
{
	my $cascade = standby_of($standby, 'cascade', has_streaming => 1);
	my %least;

	for my $node ($standby, $cascade)
	{
		$primary->wait_for_replay_catchup($standby);
		$standby->wait_for_replay_catchup($cascade, $primary);
		$node->safe_psql('postgres', 'CHECKPOINT');
	}
	change($primary) for 1 .. 8;
	$primary->wait_for_replay_catchup($standby);
	$standby->wait_for_replay_catchup($cascade, $primary);
	crash($_) for $cascade, $standby;
	kill_all($primary);
	$least{ $_->name } = answer_without_pool($_, $_->name . ', without the pool', "primary_conninfo = ''\nrestore_command = 'false'")
	  for $cascade, $standby;
	start_nowait($cascade);
	right_answers($cascade, $least{cascade}, 'cascade, alone', wait => 1);
	start_nowait($standby);
	right_answers($standby, $least{standby}, 'both ends crashed, standby', wait => 1);
	$primary->start;
	change($primary);
	$primary->wait_for_replay_catchup($standby);
	$standby->wait_for_replay_catchup($cascade, $primary);
	same_as($primary, $_, 'both ends crashed, ' . $_->name) for $standby, $cascade;
	$cascade->stop;
}
$standby->stop;

# A standby that gets its WAL from the archive lacks a segment, which comes
# later.
{
	my $name = 'archive gap';
	my $node = standby_of($primary, 'archived', has_restoring => 1);
	my ($least, $lsn, $segment, $log, $offset, @segments);

	# without its pool it must get to what its data files have, before the gap
	$node->append_conf('postgresql.conf', 'bgwriter_lru_maxpages = 0');
	$node->reload;
	$lsn = $primary->safe_psql('postgres', 'CHECKPOINT; SELECT pg_switch_wal()');
	wait_for_replay($node, $lsn);
	$node->safe_psql('postgres', 'CHECKPOINT');
	# a page that is evicted may move what the data files need to the end
	for my $attempt (1 .. 5)
	{
		$node->start if $attempt > 1;
		change($primary) for 1 .. 8;
		$lsn = $primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
		wait_for_replay($node, $lsn);
		crash($node);

		# one in the middle of what has to be replayed
		my ($control) = run_command([ 'pg_controldata', $node->data_dir ]);
		my ($redo) = $control =~ /REDO WAL file:\s+([0-9A-F]{24})/;
		my ($high, $low) = $control =~ m{Minimum recovery ending location:\s+([0-9A-F]+)/([0-9A-F]+)};
		my $minimum = sprintf '%s%08X%08X', substr($redo, 0, 8), hex $high, hex($low) >> 20;
		@segments = grep { $_ gt $redo && $_ gt $minimum } map { m{/([0-9A-F]{24})$} ? $1 : () } glob $node->data_dir . '/pg_wal/*';
		last if @segments > 1;
	}
	cmp_ok(scalar @segments, '>', 1, "$name: there are segments to lack");
	$segment = $segments[1];
	rename "$archive/$segment", "$archive/$segment.away" or die $!;
	unlink $node->data_dir . "/pg_wal/$segment" or die $!;
	$least = answer_without_pool($node, "$name, without the pool", q{archive_mode = off});

	$offset = log_offset($node);
	start_nowait($node);
	$log = wait_for_either($node, $ready, $waits, $offset);
	is(start_outcome($node, $offset)->{start}, 'warm', "$name: warm start");
	unlike($log, $ready, "$name: no connections before the segment is there");
	right_answers($node, $least, "$name, before the segment is there") if $log =~ $ready;
	rename "$archive/$segment.away", "$archive/$segment" or die $!;
	right_answers($node, $least, "$name, from when the segment is there", wait => 1);
	wait_for_replay($node, $lsn);
	same_as($primary, $node, $name);
	$node->stop;
}
$primary->stop;
done_testing();

sub standby_of
{
	my ($of, $name, %params) = @_;
	my $node;

	$of->backup($name) if $of != $primary;
	$node = new_standby($name, $of, $of == $primary ? 'b' : $name, init => \%params, mode => 'always');
	$node->append_conf('postgresql.conf', 'archive_mode = off');
	PostgreSQL::Test::Utils::system_or_bail('cp', $node->data_dir . '/postgresql.conf', $node->basedir . '/conf');
	$node->start;
	return $node;
}

sub reset_conf
{
	my ($node) = @_;
	PostgreSQL::Test::Utils::system_or_bail('cp', $node->basedir . '/conf', $node->data_dir . '/postgresql.conf');
	return;
}

# Changes that leave no old version of a row behind.
sub change
{
	my ($node) = @_;

	$node->safe_psql('postgres', $_) for
	  q{UPDATE accounts SET balance = balance + CASE WHEN id % 2 = 0 THEN 1 ELSE -1 END;
		INSERT INTO history SELECT FROM generate_series(1, 10)},
	  'VACUUM accounts';
	return;
}

sub start_load
{
	my $script = PostgreSQL::Test::Utils::tempdir . '/load.sql';

	unlink $script;
	append_to_file($script, sprintf(q{
\set a random(1, %d)
\set b random(1, %d)
BEGIN;
UPDATE accounts SET balance = balance + 1 WHERE id = :a;
UPDATE accounts SET balance = balance - 1 WHERE id = :b;
INSERT INTO history SELECT FROM generate_series(1, 10);
COMMIT;
}, ACCOUNTS, ACCOUNTS));
	return IPC::Run::start(
		[ 'pgbench', '-n', '-c' => 1, '-T' => 600, '-f' => $script, '-h' => $primary->host, '-p' => $primary->port, 'postgres' ],
		'<' => \undef, '>' => \my $out, '2>' => \my $err);
}

sub stop_load
{
	my ($load) = @_;

	$load->signal('TERM');
	eval { $load->finish };
	return;
}

sub crash
{
	my ($node, $seals) = @_;

	answer($node);
	wait_for_seals() if $seals // 1;
	kill_all($node);
	return;
}

# Wait for one of two messages, and return the log.
sub wait_for_either
{
	my ($node, $one, $other, $offset) = @_;
	my $log;

	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$log = slurp_file($node->logfile, $offset // 0);
		return $log if $log =~ $one || $log =~ $other;
		select undef, undef, undef, 0.1;
	}
	die 'neither message in the log';
}

# Accounts, sum of balances and rows of history, by the tables and by their
# indexes, in one snapshot; undef if there is no connection.  An error is an
# answer, too, and a wrong one.
sub answer
{
	my ($node) = @_;
	my $query = 'SELECT (SELECT count(*) FROM accounts WHERE id > 0), (SELECT sum(balance) FROM accounts WHERE id > 0), (SELECT count(*) FROM history WHERE id > 0)';
	my ($out, $err);

	# not by standard input, which is closed if there is no connection
	IPC::Run::run([ 'psql', '-XAtq', '-v' => 'ON_ERROR_STOP=1', '-d' => $node->connstr('postgres'),
			map { ('-c' => $_) }
			  'BEGIN ISOLATION LEVEL REPEATABLE READ',
			  'SET LOCAL enable_indexscan = off', 'SET LOCAL enable_indexonlyscan = off', 'SET LOCAL enable_bitmapscan = off',
			  $query,
			  'RESET ALL', 'SET LOCAL enable_seqscan = off',
			  $query,
			  'COMMIT' ], '<' => \undef, '>' => \$out, '2>' => \$err)
	  and return $out;
	return undef if $err =~ /not yet accepting connections|starting up|No such file or directory|Connection refused/;
	return "error|0|0\n$err";
}

# Answer after answer must be that of a snapshot, and none behind another.
# Returns the rows of history in the last one.
sub right_answers
{
	my ($node, $least, $name, %params) = @_;
	my $history = $least;
	my (@wrong, $answer);
	my $n = 0;

	for (1 .. 50 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$answer = answer($node);
		if (!defined $answer)
		{
			last if !$params{wait};
			select undef, undef, undef, 0.02;
			next;
		}
		my @lines = split /\n/, $answer;
		my @values = split /\|/, $lines[0];
		push @wrong, $answer
		  if $lines[0] ne $lines[1] || $values[0] != ACCOUNTS || $values[1] ne '0' ||
		  $values[2] % 10 != 0 || $values[2] < $history;
		$history = $values[2];
		last if ++$n == ($params{times} // 3);
	}
	cmp_ok($n, '>', 0, "$name: it answers");
	is(join('; ', @wrong), '', "$name: each answer is that of a snapshot, and not behind");
	return $history;
}

# The same state started without the pool: how many rows of history has its
# first answer?
sub answer_without_pool
{
	my ($node, $name, $conf) = @_;
	my $twin = PostgreSQL::Test::Cluster->new('twin');
	my ($answer, $count);

	system_or_bail('rm', '-rf', $twin->data_dir);
	system_or_bail('cp', '-a', $node->data_dir, $twin->data_dir);
	unlink $twin->data_dir . '/postmaster.pid';
	$twin->append_conf('postgresql.conf', 'port = ' . $twin->port . "\n" . ($conf // ''));
	set_mode($twin, 'off');
	$twin->start;
	$answer = answer($twin);
	($count) = $answer =~ /^@{[ ACCOUNTS ]}\|0\|(\d+)\n/;
	ok(defined $count, $name) or diag($answer);
	$twin->stop('immediate');
	system_or_bail('rm', '-rf', $twin->basedir);
	return $count // 0;
}

sub wait_for_replay
{
	my ($node, $lsn) = @_;

	$node->poll_query_until('postgres', "SELECT pg_last_wal_replay_lsn() >= '$lsn'::pg_lsn")
	  or die 'no replay';
	return;
}

sub same_as
{
	my ($one, $other, $name) = @_;

	is(checksums($other, tables => [qw(accounts history)]), checksums($one, tables => [qw(accounts history)]),
		"$name: contents are those of the primary");
	return;
}
