
# Copyright (c) 2026, the persistent-cache developers

# Mode always on a standby: its WAL ends before what kept pages have, or seems
# to.  If it does, one start gives up, and the next one does what the mode off
# does.  If it only seems to, nothing is to be said of it.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use constant SEGMENT => 1024 * 1024;

my $starts_again = qr/WARNING:  WAL ends at [0-9A-F\/]+, but it was durable up to [0-9A-F\/]+, and pages.*HINT:  WAL is damaged or missing.*persistent cache: starting cold/s;
my $complaint = qr/redo invariant violated|but it was durable up to|request .* is past current point/;

my $primary = new_node('primary', mode => undef,
	init => { has_archiving => 1, allows_streaming => 1, extra => [ '--wal-segsize' => 1 ] },
	conf => "wal_keep_size = 320MB\nwal_retrieve_retry_interval = 100ms\nwal_log_hints = on");

$primary->start;
$primary->safe_psql('postgres', q{
CREATE EXTENSION pg_prewarm;
CREATE TABLE t (id int PRIMARY KEY, v int, filler text);
INSERT INTO t SELECT i, 0, repeat('x', 100) FROM generate_series(1, 5000) i;
CREATE TABLE other (id int, filler text);
INSERT INTO other SELECT i, repeat('z', 500) FROM generate_series(1, 5000) i});
$primary->backup('b');

# --- Damage between pg_control's minRecoveryPoint and what kept pages have.
# Then likewise, with a stop that could make a restartpoint.  At last with so few
# buffers that pages of a later time have to be written to their files while
# recovery goes on.
for my $case ([ 'damaged', '32MB' ], [ 'damaged, and stopped', '31MB' ], [ 'damaged, and pages written', '2MB' ])
{
	my ($name, $shared_buffers) = @$case;
	my $standby = standby_with("standby_$shared_buffers");
	my ($at, $off, $offset, $log);

	contents($standby);
	$primary->safe_psql('postgres', 'CHECKPOINT');
	$primary->wait_for_replay_catchup($standby);
	$standby->safe_psql('postgres', 'CHECKPOINT');
	change() for 1 .. 2;
	$primary->safe_psql('postgres', q{UPDATE other SET filler = reverse(filler)});
	$primary->safe_psql('postgres', 'CHECKPOINT');
	$primary->wait_for_replay_catchup($standby);
	$at = $primary->safe_psql('postgres', q{SELECT pg_current_wal_insert_lsn() - '0/0'});
	change() for 1 .. 3;
	$primary->wait_for_replay_catchup($standby);
	seal_table_and_kill($standby);
	damage($standby, $at);
	$standby->append_conf('postgresql.conf', "primary_conninfo = ''");
	cmp_ok(min_recovery_point($standby), '<=', $at, "$name: minRecoveryPoint is before the damage");
	$off = promoted_without_pool($standby, $name);

	# the first start, promoted
	is(verify_json($standby)->{rc}, 0, "$name: the pool itself is fine");
	$offset = log_offset($standby);
	$standby->append_conf('postgresql.conf', "shared_buffers = $shared_buffers");
	start_nowait($standby);
	$standby->wait_for_log(qr/persistent cache: recovery waits for WAL after|ready to accept read-only connections/, $offset);
	$log = slurp_file($standby->logfile, $offset);
	like($log, qr/persistent cache: kept [1-9]/, "$name: warm start");
	unlike($log, qr/ready to accept read-only connections/, "$name: nobody is let in");
	if ($name =~ /stopped/)
	{
		$standby->stop('fast');
		cmp_ok(min_recovery_point($standby), '<=', $at, "$name: pg_control does not demand what is lost");
		cold_after_crash($standby, 'attaching', qr/./, "$name, the next start");
		$standby->promote;
		is(contents($standby), $off, "$name, the next start: promotes with what the mode off has");
		$standby->stop;
		next;
	}
	promote_nowait($standby);
	if ($shared_buffers eq '2MB')
	{
		ok(gone($standby), "$name: the server stops when it is promoted");
		$log = slurp_file($standby->logfile, $offset);
		# now it would be wrong to go on, with or without the pool
		cmp_ok(min_recovery_point($standby), '>', $at, "$name: pg_control says that pages of a later time are in the files");
		like($log, qr/WAL ends before consistent recovery point/, "$name: so says PostgreSQL");
		unlike($log, qr/request .* is past current point/, "$name: no page was written that pg_control does not know of");
		next;
	}
	$standby->wait_for_log(qr/database system is ready to accept connections/, $offset);
	like(slurp_file($standby->logfile, $offset), $starts_again, "$name: the server starts again, cold, and says why");
	$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die;
	is(contents($standby), $off, "$name: it is promoted then, with what the mode off has");
	$standby->safe_psql('postgres', 'UPDATE t SET v = v + 1');
	$off = contents($standby);
	seal_table_and_kill($standby);
	like(started($standby), qr/persistent cache: kept [1-9]/, "$name, mended: warm");
	is(contents($standby), $off, "$name, mended: contents are right");
	$standby->stop;
}

# --- A standby with paused replay crashes, and becomes a primary: it had
# received more than it had replayed.
{
	my $name = 'paused replay';
	my $standby = standby_with('paused');
	my ($expected, $log);

	$primary->wait_for_replay_catchup($standby);
	$standby->safe_psql('postgres', 'CHECKPOINT');
	change();
	$primary->wait_for_replay_catchup($standby);
	contents($standby);
	# no new restartpoint is possible, but minRecoveryPoint moves
	$standby->safe_psql('postgres', 'CHECKPOINT');
	$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
	$standby->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'}) or die;
	change() for 1 .. 3;
	$expected = contents($primary);
	$primary->wait_for_catchup($standby, 'flush', $primary->lsn('flush'));
	wait_for_seals();
	kill_all($standby);
	unlink $standby->data_dir . '/standby.signal' or die $!;
	$log = started($standby);
	like($log, qr/persistent cache: kept [1-9]/, "$name: warm start");
	unlike($log, $complaint, "$name: no complaint");
	is(contents($standby), $expected, "$name: contents are right");
	$standby->safe_psql('postgres', 'UPDATE t SET v = v + 1');
	$expected = contents($standby);
	seal_table_and_kill($standby);
	$log = started($standby);
	like($log, qr/persistent cache: kept [1-9]/, "$name, a crash as primary: warm start");
	unlike($log, $complaint, "$name, a crash as primary: no complaint");
	is(contents($standby), $expected, "$name, a crash as primary: contents are right");
	$standby->stop;
}

# --- A segment from the archive that is full only in part.  What follows is
# zeros, or older WAL if the file had been recycled.
for my $tail (qw(zeros recycled))
{
	my $name = "partly filled segment, $tail";
	my $standby = standby_with("partly_$tail", init => { has_restoring => 1 });
	my ($lsn, $file, $path, $expected, $log, $from, $bytes);

	$lsn = $primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
	change();
	$lsn = $primary->safe_psql('postgres', q{SELECT pg_switch_wal()});
	$primary->safe_psql('postgres', q{UPDATE t SET v = v + 1 WHERE id % 7 = 0});
	$primary->safe_psql('postgres', 'VACUUM t');
	$expected = contents($primary);
	# nothing follows the record that ends there
	$primary->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, '', 'here')});
	$lsn = $primary->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');
	$file = $primary->safe_psql('postgres', 'SELECT pg_walfile_name(pg_current_wal_flush_lsn())');
	$path = $primary->archive_dir . "/$file";
	$bytes = read_bytes($primary->data_dir . "/pg_wal/$file", 0, SEGMENT);
	$from = $primary->safe_psql('postgres', "SELECT ('$lsn'::pg_lsn - '0/0') % @{[ SEGMENT ]}");
	$from = int(($from + 8191) / 8192) * 8192;
	cmp_ok($from, '<', SEGMENT, "$name: there is a part that is not full");
	# pages of another place in WAL
	substr($bytes, $from) = $tail eq 'zeros' ? "\0" x (SEGMENT - $from) :
	  join '', (substr($bytes, 0, 8192)) x ((SEGMENT - $from) / 8192);
	append_to_file("$path.tmp", $bytes);
	rename "$path.tmp", $path or die $!;
	$standby->poll_query_until('postgres', "SELECT pg_last_wal_replay_lsn() >= '$lsn'::pg_lsn") or die;
	seal_table_and_kill($standby);
	unlink $standby->data_dir . '/standby.signal' or die $!;
	is(verify_json($standby)->{rc}, 0, "$name: pg_pcache verify says warm");
	$standby->start(fail_ok => 1);
	$log = slurp_file($standby->logfile);
	like($log, qr/persistent cache: kept [1-9]/, "$name: warm start");
	unlike($log, $complaint, "$name: no complaint");
	is($standby->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 'f', "$name: a primary");
	is(contents($standby), $expected, "$name: contents are right");
	$standby->stop;
	unlink $path or die $!;
}

# --- A standby crashes soon after it has gone to a new timeline, on which no
# page was changed yet.  Where kept pages are is on the old one, and so must
# pg_control say.
{
	my $name = 'another timeline';
	my $standby = standby_with('behind');
	my ($log, $expected, $other, $at, $offset, $control);

	contents($standby);
	$other = PostgreSQL::Test::Cluster->new('other');
	$other->init_from_backup($primary, 'b', has_streaming => 1);
	$other->append_conf('postgresql.conf', 'archive_mode = off');
	$other->start;
	$standby->enable_streaming($other);
	$standby->reload;
	$primary->safe_psql('postgres', 'CHECKPOINT');
	catch_up($other, $standby);
	$standby->safe_psql('postgres', 'CHECKPOINT');
	change() for 1 .. 2;
	$primary->safe_psql('postgres', q{UPDATE other SET filler = reverse(filler)});
	catch_up($other, $standby);
	$at = $primary->safe_psql('postgres', q{SELECT pg_current_wal_insert_lsn() - '0/0'});
	change() for 1 .. 3;
	catch_up($other, $standby);
	contents($standby);
	$primary->stop;
	$other->promote;
	$standby->poll_query_until('postgres', 'SELECT received_tli = 2 FROM pg_stat_wal_receiver') or die;
	wait_for_seals();
	kill_all($standby);

	# it can't get there, and has to write pages
	damage($standby, $at);
	$standby->append_conf('postgresql.conf', "primary_conninfo = ''\nshared_buffers = 2MB");
	$offset = log_offset($standby);
	start_nowait($standby);
	$standby->wait_for_log(qr/persistent cache: recovery waits for WAL after|ready to accept read-only connections|FATAL/, $offset);
	kill_all($standby);
	($control) = run_command([ 'pg_controldata', $standby->data_dir ]);
	cmp_ok(min_recovery_point($standby), '>', $at, "$name: pages of a later time are in the files");
	like($control, qr/Min recovery ending loc's timeline:\s+1$/m, "$name: pg_control says on which timeline");

	# what was damaged comes back: PostgreSQL can go on
	damage($standby, $at);
	$other->safe_psql('postgres', 'UPDATE t SET v = v + 1000 WHERE id % 11 = 0');
	$expected = contents($other);
	$standby->enable_streaming($other);
	$standby->start(fail_ok => 1);
	unlike(slurp_file($standby->logfile, $offset), qr/does not contain minimum recovery point/, "$name: it starts again");
	$other->wait_for_replay_catchup($standby);
	is(contents($standby), $expected, "$name: contents are right");
	$standby->stop;
	$other->stop;
}
done_testing();

sub standby_with
{
	my ($name, %params) = @_;
	my $node = new_standby($name, $primary, 'b', %params, mode => 'always', size => '32MB');

	$node->append_conf('postgresql.conf', 'archive_mode = off');
	$node->start;
	return $node;
}

# Some WAL, that leaves no old version of a row behind.
sub change
{
	$primary->safe_psql('postgres', $_) for
	  q{UPDATE t SET v = v + 1}, 'VACUUM t';
	return;
}

sub contents
{
	my ($node) = @_;

	return $node->safe_psql('postgres', q{
SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;
SELECT count(*), sum(v), sum(hashtextextended(t::text, 0)) FROM t;
RESET ALL; SET enable_seqscan = off;
SELECT count(*), sum(v), sum(hashtextextended(t::text, 0)) FROM t WHERE id > 0});
}

sub seal_table_and_kill
{
	my ($node) = @_;

	contents($node);
	wait_for_seals();
	kill_all($node);
	return;
}

# Wait for a cascade.
sub catch_up
{
	my ($other, $standby) = @_;

	$primary->wait_for_replay_catchup($other);
	$other->wait_for_replay_catchup($standby, $primary);
	return;
}

# Spoil the record at an LSN; the second time, mend it.
sub damage
{
	my ($node, $lsn) = @_;
	my $file = sprintf '%s/pg_wal/%08X%08X%08X', $node->data_dir, 1, $lsn >> 32, ($lsn & 0xFFFFFFFF) / SEGMENT;

	write_bytes($file, $lsn % SEGMENT + 4, chr(ord(read_bytes($file, $lsn % SEGMENT + 4, 1)) ^ 0x55));
	return;
}

sub min_recovery_point
{
	my ($node) = @_;
	my ($control) = run_command([ 'pg_controldata', $node->data_dir ]);

	$control =~ /Minimum recovery ending location:\s+([0-9A-F]+)\/([0-9A-F]+)/ or die;
	return hex($1) * 2**32 + hex($2);
}

# What a copy has that is started without the pool, and promoted.
sub promoted_without_pool
{
	my ($node, $name) = @_;
	my $twin = PostgreSQL::Test::Cluster->new('twin_of_' . $node->name);
	my $contents;

	system_or_bail('cp', '-a', $node->data_dir, $twin->data_dir);
	unlink $twin->data_dir . '/postmaster.pid';
	$twin->append_conf('postgresql.conf', 'port = ' . $twin->port);
	set_mode($twin, 'off');
	$twin->start;
	$twin->promote;
	$contents = contents($twin);
	$twin->stop;
	return $contents;
}

sub promote_nowait
{
	my ($node) = @_;

	system_or_bail('pg_ctl', '--no-wait', '--pgdata' => $node->data_dir, 'promote');
	return;
}

sub gone
{
	my ($node) = @_;

	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		if (!-e $node->data_dir . '/postmaster.pid')
		{
			$node->{_pid} = undef;
			return 1;
		}
		select undef, undef, undef, 0.1;
	}
	return 0;
}

# Start, and return the log of that.
sub started
{
	my ($node) = @_;
	my $offset = log_offset($node);

	$node->start;
	return slurp_file($node->logfile, $offset);
}
