
# Copyright (c) 2026, the persistent-cache developers

# pcache.recovery = short: after a kill, pages of tables that are younger than the redo
# point stay as well, and redo skips what they have.

use strict;
use warnings FATAL => 'all';

use PCacheKilled;
use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main', mode => 'always', standby => 1,
	conf => "pcache.recovery = short\nrestart_after_crash = on\nwal_keep_size = 256MB\nautovacuum = off\n");
my $outcome;

# Many changes after a checkpoint, of which all is in WAL.
sub work
{
	warm_pages($node);
	$node->safe_psql('postgres', 'CHECKPOINT');
	change_tables($node);
	$node->safe_psql('postgres', 'VACUUM t_heap');
	$node->safe_psql('postgres', q{UPDATE t_heap SET filler = 'once more' WHERE id % 7 = 1; DELETE FROM t_heap WHERE id % 211 = 3});
	return;
}

# A test: the server was killed, and the next start does or does not keep young pages.
# Contents are right.  Returns what it says.
sub start_short
{
	my ($name, $is_short, %params) = @_;
	my $outcome = start_and_compare($node, $name, %params);
	my $short = shortened($outcome);

	is($outcome->{start}, $params{start} // 'warm', "$name: " . ($params{start} // 'warm')) or diag($outcome->{reason} // $outcome->{log});
	cmp_ok($short->{$_}, $is_short ? '>' : '==', 0, "$name: $short->{$_} $_") for qw(young skipped);
	return $short;
}

$node->start;
load_tables($node);

for my $k (1 .. 2)
{
	work();
	kill_seen($node);
	my $short = start_short("kill -9, $k", 1);
	cmp_ok($short->{skipped}, '>', 1000, "kill -9, $k: most records are skipped");
	$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS pg_pcache');
	is($node->safe_psql('postgres', 'SELECT younger, redo_skipped, redo_called FROM pg_pcache_pool'),
		"$short->{young}|$short->{skipped}|$short->{called}", "kill -9, $k: the view says the same");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_buffercache WHERE isdirty AND relforknumber = 0
	  AND relfilenode = pg_relation_filenode('t_heap')}) > 100 ? 'dirty' : 'written', 'written', "kill -9, $k: the checkpoint at the end has written them");
}
warm_restart($node, 'a clean stop');
is($node->safe_psql('postgres', 'SELECT younger, redo_skipped, redo_called FROM pg_pcache_pool'), '0|0|0', 'a clean stop: no young pages');

work();
wait_for_sighting($node);
$node->stop('immediate');
start_short('an immediate stop', 1);

# The same memory after the death of one process.
work();
{
	my $right = contents($node) =~ s/^t_(unlogged|seq).*\n//mgr;
	my $offset = kill_backend($node, 'warm');
	my $short = shortened(start_outcome($node, $offset));

	cmp_ok($short->{$_}, '>', 0, "one process: $short->{$_} $_") for qw(young skipped);
	is(contents($node) =~ s/^t_(unlogged|seq).*\n//mgr, $right, 'one process: contents are right');
}

# ---------------------------------------------------------------- nothing is skipped
$node->append_conf('postgresql.conf', 'pcache.recovery = full');
$node->restart;
work();
kill_seen($node);
start_short('full', 0);
$node->append_conf('postgresql.conf', 'pcache.recovery = short');
$node->restart;

# Recovery that is to check what it does, does all of it.
$node->append_conf('postgresql.conf', q{wal_consistency_checking = 'heap, heap2'});
$node->restart;
work();
kill_seen($node);
{
	my $outcome = start_and_compare($node, 'wal_consistency_checking');
	my $short = shortened($outcome);

	cmp_ok($short->{young}, '>', 0, "wal_consistency_checking: $short->{young} young pages");
	cmp_ok($short->{skipped}, '<', 0.05 * $short->{called}, "wal_consistency_checking: $short->{skipped} records are skipped, $short->{called} are not");
}
$node->adjust_conf('postgresql.conf', 'wal_consistency_checking', undef);
$node->restart;

# A recovery that was interrupted: it may have written what it had replayed.
work();
# none of these records is skipped
$node->safe_psql('postgres', 'CREATE SEQUENCE many');
$node->safe_psql('postgres', q{SELECT count(setval('many', i)) FROM generate_series(1, 500000) i});
kill_seen($node);
{
	my $offset = log_offset($node);

	local %ENV = $node->_get_env();
	unlink $node->data_dir . '/postmaster.pid';
	system_or_bail('pg_ctl', '-D' => $node->data_dir, '-l' => $node->logfile, '-W', 'start');
	$node->{_pid} = stop_in_redo($node, $node->logfile, $offset, sighted => 1);
	like(slurp_file($node->logfile, $offset), qr/of these pages are younger than the redo point/, 'interrupted: there were young pages');
	# the worker has seen that pg_control says that it is in recovery
	kill_all($node);
}
start_short('interrupted', 0);

# Fewer buffers, and more than the pool has room for
for my $buffers ('16MB', '48MB')
{
	work();
	kill_seen($node);
	$node->append_conf('postgresql.conf', "shared_buffers = $buffers");
	start_short("$buffers of buffers", 0);
}

# ---------------------------------------------------------------- WAL
# What is there is not damaged, but ends before the place up to which it was written.
work();
{
	my $lsn = $node->safe_psql('postgres', q{SELECT redo_lsn FROM pg_control_checkpoint()});

	$node->safe_psql('postgres', q{SELECT pg_logical_emit_message(false, 'test', repeat('x', 40000))}) for 1 .. 5;
	my ($file, $offset) = split /\|/, $node->safe_psql('postgres', "SELECT file_name, file_offset FROM pg_walfile_name_offset('$lsn'::pg_lsn + 120000)");
	kill_seen($node);
	my $path = $node->data_dir . "/pg_wal/$file";

	write_bytes($path, $offset, chr(ord(read_bytes($path, $offset, 1)) ^ 1));
}
{
	my $outcome = start_and_compare($node, 'WAL is damaged');

	like($outcome->{log}, qr/recovery will not be shortened: WAL ends before the place up to which it was written/, 'WAL is damaged: the log says so');
	is(shortened($outcome)->{young}, 0, 'WAL is damaged: no young pages');
	# what comes next is not to be refused for this reason: WAL has to pass that place again
	$node->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, 'test', repeat('x', 1000000)) FROM generate_series(1, 3)});
}

# The background writer writes young pages before recovery has synced anything, so WAL that
# they rest on has to be durable first.
$node->append_conf('postgresql.conf', 'fsync = on');
$node->restart;
work();
kill_seen($node);
{
	my $right = oracle($node);

	on_machine({ MACHINE_READ_ONLY_EIO => 1 }, sub { start_short('WAL cannot be synced', 0, right => $right) });
	like(slurp_file($node->logfile), qr/recovery will not be shortened: WAL could not be synced/, 'WAL cannot be synced: the log says so');
}
work();
kill_seen($node);
start_short('WAL can be synced', 1);

# ---------------------------------------------------------------- no ordinary recovery
work();
kill_seen($node);
append_to_file($node->data_dir . '/standby.signal', '');
{
	my $offset = log_offset($node);

	$node->start;
	is(shortened(start_outcome($node, $offset))->{young}, 0, 'a standby: no young pages');
	$node->promote;
}

# It was promoted in the middle of WAL, and has made no checkpoint since.  So that of the
# timeline before leads to WAL that goes further than its own.
$node->stop;
{
	my $copy = $node->basedir . '/before';
	my $target;

	system_or_bail('cp', '-a', $node->data_dir, $copy);
	$node->start;
	$node->safe_psql('postgres', $_) for 'SELECT pg_switch_wal()', q{UPDATE t_heap SET filler = 'replayed' WHERE id BETWEEN 1001 AND 1005};
	$target = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	$node->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, 'test', repeat('x', 600000))});
	kill_all($node);
	system_or_bail('rm', '-rf', "$copy/pg_wal");
	rename $node->data_dir . '/pg_wal', "$copy/pg_wal" or die;
	exchange($node, $copy);
	append_to_file($node->data_dir . '/recovery.signal', '');
	$node->append_conf('postgresql.conf', "restore_command = 'false'\nrecovery_target_lsn = '$target'\nrecovery_target_inclusive = off\nrecovery_target_action = pause");
	$node->start;
	$node->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'});
	kill 'STOP', child($node->{_pid}, 'checkpointer');
	$node->promote;
	$node->safe_psql('postgres', q{UPDATE t_heap SET filler = 'promoted' WHERE id BETWEEN 1003 AND 1007});
	kill_seen($node);
	$node->adjust_conf('postgresql.conf', $_, undef) for qw(restore_command recovery_target_lsn recovery_target_inclusive recovery_target_action);
	is(shortened(start_and_compare($node, 'promoted'))->{young}, 0, 'promoted: no young pages');
}

$node->stop;
done_testing();
