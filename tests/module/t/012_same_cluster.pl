
# Copyright (c) 2026, the persistent-cache developers

# Mode always: a server was killed, and before the next start something was done to its
# cluster, its pool or its host.  What is kept is right, or nothing is.

use strict;
use warnings FATAL => 'all';

use PCacheKilled;
use PCacheModule;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Without checksums a hint leaves no trace in WAL.
my $node = module_node('main', mode => 'always', standby => 1,
	init => { extra => major() < 18 ? [] : ['--no-data-checksums'] },
	conf => "restart_after_crash = on\nwal_keep_size = 512MB\nmax_wal_size = 4GB\n");
my $data = $node->data_dir;
my $pool = pool_file($node);
my $control = qr/^the control file is not what the pool's server last saw$/;
my $checkpoint = qr/^the pool knows of checkpoint /;
my ($offset, $right, $outcome, $log);

# Clean pages, older than the redo point, and some that were changed since.
sub work
{
	change_tables($node);
	warm_pages($node);
	$node->safe_psql('postgres', q{CHECKPOINT; UPDATE t_kinds SET p = p + point(1, 0) WHERE id % 50 = 3});
	return;
}

# So much WAL that redo takes a while, for one page.
sub much_wal
{
	$node->safe_psql('postgres', q{SELECT count(setval('many', i)) FROM generate_series(1, 500000) i});
	return;
}

# A server with the library that is killed in redo, when it has noted what pg_control says.
sub killed_in_redo
{
	my ($before) = @_;

	$offset = log_offset($node);
	start_nowait($node);
	stop_in_redo($node, $node->logfile, $offset, sighted => 1);
	kill_all($node);
	return start_outcome($node, $offset);
}

$node->start;
load_tables($node);
$node->safe_psql('postgres', 'CREATE SEQUENCE many');

# ---------------------------------------------------------------- others that ran in between
# 010 has single-user mode and stock servers that got ready.
work();
much_wal();
pause_for_sighting();
kill_all($node);
stock_start($node, '--no-wait');
$node->{_pid} = stop_in_redo($node, $node->logfile . '.stock', 0);
kill_all($node);
cold_start($node, $control, 'a stock server that was killed in redo');

work();
$node->safe_psql('postgres', 'CHECKPOINT');
pause_for_sighting();
kill_all($node);
unlink "$data/postmaster.pid";
system_or_bail('pg_resetwal', '-f', $data);
cold_start($node, $checkpoint, 'pg_resetwal');

# A copy of the killed cluster takes the pool first.
work();
kill_all($node);
pause_for_sighting(2);
my $copy = PostgreSQL::Test::Cluster->new('copy');
system_or_bail('cp', '-a', $data, $copy->data_dir);
$copy->append_conf('postgresql.conf', 'port = ' . $copy->port);
unlink $copy->data_dir . '/postmaster.pid';
start_warm($copy, 'a copy has all files anew', at_least => 0, changed => 1);
change_tables($copy);
warm_pages($copy);
pause_for_sighting();
kill_all($copy);
cold_start($node, qr/^(the pool knows of checkpoint |the control file is not)/, 'the pool was used by a copy of the cluster');

# ---------------------------------------------------------------- files of an earlier moment
for my $case (
	[ 'nothing new', 0, 0, undef ],
	[ 'a commit that is lost', 1, 0, qr/^the WAL before \S+ on timeline 1 is not what was written$|^could not (open|read) file "pg_wal/ ],
	[ 'another checkpoint', 1, 1, $checkpoint ])
{
	my ($what, $more, $checkpoints, $reason) = @$case;
	my $name = "a file system was rolled back, $what";
	my $psql = $node->background_psql('postgres');

	$node->safe_psql('postgres', q{DROP TABLE IF EXISTS h, filler; CREATE TABLE h (id int);
CREATE TABLE filler (i int) WITH (fillfactor = 10);
INSERT INTO filler SELECT generate_series(1, 90000)});
	$psql->query('BEGIN; INSERT INTO h VALUES (42)');
	work();
	evict($node);
	warm_pages($node);
	frozen_copy($node, "$data.copy");
	if ($more)
	{
		# the row gets a hint, and is written with it, but its page has no later LSN
		$psql->query('COMMIT');
		is($node->safe_psql('postgres', 'SELECT count(*) FROM h'), 1, "$name: a row");
		evict($node);
		warm_pages($node);
		is($node->safe_psql('postgres', q{SELECT count(*) FROM h;
SELECT t_infomask & 256, lsn < redo_lsn FROM heap_page_items(get_raw_page('h', 0)), page_header(get_raw_page('h', 0)), pg_control_checkpoint();
SELECT isdirty FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('h')}),
			"1\n256|t\nf", "$name: it has a hint, and its page is clean and older than redo");
		$node->safe_psql('postgres', 'CHECKPOINT') if $checkpoints;
		change_tables($node);
	}
	pause_for_sighting();
	kill_all($node);
	eval { $psql->quit };
	exchange($node, "$data.copy");
	my $lost = sub { contents($_[0]) . $_[0]->safe_psql('postgres', 'SELECT count(*) FROM h') };
	$right = oracle($node, code => $lost);
	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($lost->($node), $right, "$name: contents are right");
	like($right, qr/0$/, "$name: the row is lost");
	if (defined $reason) { like($outcome->{reason} // 'warm', $reason, "$name: cold") }
	# unless the server has logged the transactions that run, as it does now and then
	elsif (($outcome->{reason} // '') =~ /^the WAL before/) { pass("$name: cold, as WAL went on") }
	else { cmp_ok($outcome->{kept} // 0, '>', 300, "$name: warm") or diag($outcome->{log}) }
}
# To a moment after the worker has last said how far WAL goes: nothing tells, but pages that
# were logged later are not older than redo.
work();
pause_for_sighting();
kill 'STOP', child($node->{_pid}, 'persistent cache') // die 'no worker';
frozen_copy($node, "$data.copy");
wait_for_sighting($node);
kill 'STOP', child($node->{_pid}, 'persistent cache');
change_tables($node);
evict($node);
warm_pages($node);
kill_all($node);
exchange($node, "$data.copy");
start_warm($node, 'a file system was rolled back, and nothing tells');

# Clean pages of an unlogged table, whose files the start resets.
work();
$node->safe_psql('postgres', q{TRUNCATE t_unlogged; INSERT INTO t_unlogged SELECT i, 'before' FROM generate_series(1, 5000) i});
evict($node);
warm_pages($node);
pause_for_sighting();
kill_all($node);
$outcome = start_warm($node, 'an unlogged table', at_least => 300);
cmp_ok($outcome->{dropped}{unlogged} // 0, '>', 5, 'an unlogged table: its pages are dropped');
is($node->safe_psql('postgres', q{INSERT INTO t_unlogged SELECT i, 'after' FROM generate_series(1, 5000) i;
SET enable_seqscan = off; SELECT filler, count(*) FROM t_unlogged WHERE id > 0 GROUP BY 1}), 'after|5000', 'an unlogged table: it is another one');
$node->safe_psql('postgres', 'CHECKPOINT; DROP TABLE h, filler');

# Put back by a program that makes the files anew.
work();
frozen_copy($node, "$data.copy");
pause_for_sighting(2);
kill_all($node);
system_or_bail('rm', '-rf', $data);
system_or_bail('cp', '-a', "$data.copy", $data);
system_or_bail('rm', '-rf', "$data.copy");
unlink "$data/postmaster.pid";
start_warm($node, 'all files were put back by cp', at_least => 0, changed => 1);

# A file that was repaired: it is not what the page was read from.
work();
$node->safe_psql('postgres', q{TRUNCATE t_other; INSERT INTO t_other SELECT i, repeat('wrong', 10) FROM generate_series(1, 1000) i; CHECKPOINT; SELECT sum(length(filler)) FROM t_other});
my $path = "$data/" . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('t_other')});
my $other = q{SELECT filler, count(*) FROM t_other GROUP BY 1};
$node->safe_psql('postgres', $other);
$node->safe_psql('postgres', 'CHECKPOINT');
pause_for_sighting();
kill_all($node);
pause_for_sighting(2);
write_bytes($path, 0, slurp_file($path) =~ s/wrong/right/gr);
start_warm($node, 'a file was repaired', at_least => 300, changed => 1);
is($node->safe_psql('postgres', $other), ('right' x 10) . '|1000', 'a file was repaired: it is read');

# A backup, the WAL that was there, and a target before the last changes; the pool has the
# checkpoint that is in the backup.
$node->backup('b');
$node->safe_psql('postgres', q{SELECT pg_create_restore_point('good')});
$node->safe_psql('postgres', 'DELETE FROM t_heap WHERE id % 3 = 0');
warm_pages($node);
pause_for_sighting();
kill_all($node);
system_or_bail('mv', $data, "$data.killed");
system_or_bail('cp', '-a', $node->backup_dir . '/b', $data);
system_or_bail('cp', '-a', (grep { /\/[0-9A-F]{24}$/ } glob "$data.killed/pg_wal/*"), "$data/pg_wal");
append_to_file("$data/recovery.signal", '');
$node->append_conf('postgresql.conf', q{restore_command = 'false'
recovery_target_name = 'good'
recovery_target_action = 'promote'});
my $promoted = sub {
	$_[0]->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die;
	return $_[0]->safe_psql('postgres', 'SELECT count(*), sum(id) FROM t_heap; SET enable_seqscan = off; SELECT count(*) FROM t_heap WHERE id > 0');
};
$right = oracle($node, code => $promoted);
$offset = log_offset($node);
$node->start;
like(start_outcome($node, $offset)->{reason}, qr/^the cluster starts from a backup$/, 'a backup and a recovery target: cold');
is($promoted->($node), $right, 'a backup and a recovery target: contents are right');
system_or_bail('rm', '-rf', "$data.killed");
$node->append_conf('postgresql.conf', qq{recovery_target_name = ''\nrestore_command = ''});
$node->safe_psql('postgres', 'CHECKPOINT');
$node->restart;

# ---------------------------------------------------------------- processes that are left
# A session does not notice that the postmaster is gone while it works.
work();
pause_for_sighting();
my $session = $node->background_psql('postgres', on_error_stop => 0);
my $orphan = $session->query('SELECT pg_backend_pid()');
my $postmaster = $node->{_pid};
$session->query_until(qr/begun/, q{\echo begun
DO $$ BEGIN FOR i IN 1 .. 100000000 LOOP UPDATE t_other SET filler = 'orphan' || i WHERE id = i % 1000; INSERT INTO t_other VALUES (i, repeat('o', 500)); COMMIT; END LOOP; END $$;
});
kill 'STOP', $node->{_pid};
my @others = grep { $_ != $orphan } keys %{ children($node->{_pid}) };
kill 'KILL', $node->{_pid}, @others;
$node->{_pid} = undef;
pause_for_sighting(2);
ok(-e "/proc/$orphan", 'an orphan: it works');
kill 'STOP', $orphan;
my ($shmid) = slurp_file("$data/postmaster.pid") =~ /^[ \t]*\d+[ \t]+(\d+)[ \t]*$/m;
$offset = log_offset($node);
ok(!$node->start(fail_ok => 1), 'an orphan: no other server starts');
like(slurp_file($node->logfile, $offset), qr/FATAL:  pre-existing shared memory block/, 'an orphan: as without the library');
system_or_bail('ipcrm', '-m', $shmid);
unlink "$data/postmaster.pid";
$log = start_without($node, 'persistent cache pool "[^"]*" is locked by another process', 'an orphan that is not seen');
kill_all($node);
kill 'KILL', $orphan;
eval { $session->quit };
for (1 .. 100) { last if !-e "/proc/$orphan"; select undef, undef, undef, 0.1 }
cold_start($node, qr/^(the pool knows of checkpoint |the control file is not)/, 'after a run beside an orphan');

# The same without the server beside it: all that the orphan has changed is read.
work();
pause_for_sighting();
$session = $node->background_psql('postgres', on_error_stop => 0);
$orphan = $session->query('SELECT pg_backend_pid()');
$session->query_until(qr/begun/, q{\echo begun
DO $$ BEGIN FOR i IN 1 .. 100000000 LOOP UPDATE t_other SET filler = 'orphan' || i WHERE id = i % 1000; INSERT INTO t_other VALUES (i, repeat('o', 500)); COMMIT; END LOOP; END $$;
});
$postmaster = $node->{_pid};
kill 'STOP', $postmaster;
@others = grep { $_ != $orphan } keys %{ children($postmaster) };
kill 'KILL', $postmaster, @others;
pause_for_sighting(2);
kill 'KILL', $orphan;
eval { $session->quit };
for (1 .. 100) { last if !-e "/proc/$orphan" && !-e "/proc/$postmaster"; select undef, undef, undef, 0.1 }
$node->{_pid} = undef;
unlink "$data/postmaster.pid";
start_warm($node, 'an orphan that is gone', at_least => 300);

# ---------------------------------------------------------------- the worker does not keep up
$node->safe_psql('postgres', 'TRUNCATE t_other');
for my $checkpoints (0, 1)
{
	my $name = 'a worker that was stopped' . ($checkpoints ? ', and a checkpoint' : '');

	work();
	pause_for_sighting();
	kill 'STOP', child($node->{_pid}, 'persistent cache') // die 'no worker';
	pause_for_sighting(2);
	$node->safe_psql('postgres', q{DROP TABLE IF EXISTS filler; CREATE TABLE filler AS SELECT i, repeat('x', 1000) FROM generate_series(1, 30000) i});
	$node->safe_psql('postgres', q{UPDATE t_toast SET doc = doc || 'y'});
	evict($node);
	$node->safe_psql('postgres', 'CHECKPOINT') if $checkpoints;
	warm_pages($node);
	kill_all($node);
	if ($checkpoints) { cold_start($node, $checkpoint, $name) }
	else { start_warm($node, $name, changed => 1) }
}
$node->safe_psql('postgres', 'DROP TABLE filler');

# A clock that was set back by an hour since, longer than that ago.
work();
pause_for_sighting();
kill_all($node);
patch_sighting($pool, clock_offset => read_sighting($pool)->{clock_offset} + 3600 * 1_000_000_000);
start_warm($node, 'a clock that was set back', at_least => 0, changed => 1);

# ---------------------------------------------------------------- the pool
# A server in use does not look for its pool again.
for my $case ([ 'its directory cannot be read', sub { chmod 0, pool_dir($node) }, sub { chmod 0700, pool_dir($node) }, 'warm' ],
	[ 'its file was moved, and back', sub { rename $pool, "$pool.away" }, sub { rename "$pool.away", $pool }, 'warm' ],
	[ 'its file is a copy', sub { }, sub { system_or_bail('cp', '-a', $pool, "$pool.away"); rename "$pool.away", $pool }, qr/^the pool is a copy of the one that the server used$/ ],
	[ 'its file was removed', sub { unlink $pool }, sub { }, qr/^the pool was created by this start$/ ])
{
	my ($what, $code, $undo, $after) = @$case;

	work();
	$code->();
	$right = contents($node) =~ s/^t_(unlogged|seq).*\n//mgr;
	kill_backend($node, 'warm');
	is(contents($node) =~ s/^t_(unlogged|seq).*\n//mgr, $right, "a crash restart, $what: contents are right");
	work();
	pause_for_sighting();
	kill_all($node);
	$undo->();
	if ($after eq 'warm') { start_warm($node, "a kill, $what", at_least => 300) }
	else { cold_start($node, $after, "a kill, $what") }
}

# A start with a foreign file in its place runs without, and so the pool is of the past.
work();
pause_for_sighting();
kill_all($node);
rename $pool, "$pool.away" or die;
append_to_file($pool, "somebody's\n" x 1000);
my $foreign = slurp_file($pool);
$log = start_without($node, 'file "[^"]*/pool" is not a persistent cache pool|[^\n]*pool[^\n]*', 'a foreign file');
is(slurp_file($pool), $foreign, 'a foreign file: it stays as it is');
change_tables($node);
$node->safe_psql('postgres', 'CHECKPOINT');
kill_all($node);
rename "$pool.away", $pool or die;
cold_start($node, $checkpoint, 'the pool is back');

# ---------------------------------------------------------------- killed again and again
for my $k (1, 2)
{
	work();
	much_wal();
	pause_for_sighting();
	kill_all($node);
	for my $start (1 .. $k)
	{
		$outcome = killed_in_redo();
		is($outcome->{start}, 'warm', "$k times killed in redo: start $start is warm") or diag($outcome->{log});
		cmp_ok($outcome->{kept} // 0, '>', 300, "$k times killed in redo: start $start kept $outcome->{kept} pages");
	}
	if ($k == 1) { start_warm($node, 'killed in redo once', at_least => 300) }
	else { start_without($node, 'the last start with persistent cache pool "[^"]*" did not become ready', 'killed in redo twice') }
}
work();
pause_for_sighting();
kill_all($node);
cold_start($node, qr/^(the pool is empty|the pool file has \d+ bytes)/, 'the start after that') ;
work();
pause_for_sighting();
kill_all($node);
start_warm($node, 'at last', at_least => 300);

$node->stop;
done_testing();
