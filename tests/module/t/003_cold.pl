
# Copyright (c) 2026, the persistent-cache developers

# Stops that are not clean, starts that did not get ready, and what may be done to a data
# directory between a stop and a start: nothing is kept then, and contents are right.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main', standby => 1, conf => "restart_after_crash = on\nwal_keep_size = 512MB\n");
my $data = $node->data_dir;
my $waiting = $node->basedir . '/waiting';
# what the next start says if the stop has said why nothing is saved
my $not_saved = qr/^(the pool is empty|the server was not shut down cleanly)$/;
my $read_errors = qr/^pages may have been read with "zero_damaged_pages" or "ignore_checksum_failure"$/;
my ($offset, $outcome, $right, $pid);

# A pool with pages, and a stop.
sub fill_and_stop
{
	my ($mode) = @_;

	change_tables($node);
	warm_pages($node);
	$node->stop($mode);
	return;
}

# The same, then some work on the data directory, and a start that is cold.
sub cold_after_work
{
	my ($name, $reason, $code) = @_;

	fill_and_stop();
	is(read_superblock(pool_file($node))->{state}, STATE_CLEAN, "$name: it would be warm");
	$code->();
	cold_start($node, $reason, $name);
	return;
}

# The command that a start waited for, unless it has ended and its number is another's.
sub end_command
{
	my ($command) = @_;

	kill 'KILL', $command if (eval { slurp_file("/proc/$command/cmdline") } // '') =~ /^sleep\0/;
	return;
}

$node->start;
load_tables($node);

# ---------------------------------------------------------------- stops
change_tables($node);
warm_pages($node);
change_tables($node);
kill_all($node);
cold_start($node, qr/^the server was not shut down cleanly$/, 'kill -9');

fill_and_stop('immediate');
cold_start($node, $not_saved, 'an immediate stop');

# one process dies: the postmaster goes on, with the pool, and keeps nothing
change_tables($node);
warm_pages($node);
$right = contents($node);
for my $k (1 .. 2)
{
	kill_backend($node, qr/the server was not shut down cleanly/);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t_unlogged'), 0, "backend $k killed: unlogged tables are empty");
	$node->safe_psql('postgres', q{INSERT INTO t_unlogged SELECT i, md5(i::text) FROM generate_series(1, 5000) i});
	# WAL is ahead of a sequence
	is(contents($node) =~ s/^t_(unlogged|seq).*\n//mgr, $right =~ s/^t_(unlogged|seq).*\n//mgr, "backend $k killed: contents are right");
}
warm_restart($node, 'after crash restarts');

# A stop in which pages may not be what their files have.
for my $set ('SET zero_damaged_pages = on', 'SET LOCAL ignore_checksum_failure = on',
	'ALTER DATABASE postgres SET zero_damaged_pages = on', 'ALTER SYSTEM SET ignore_checksum_failure = on')
{
	$node->safe_psql('postgres', $set =~ /LOCAL/ ? "BEGIN; $set; COMMIT" : $set);
	reload_until($node, 'ignore_checksum_failure', '=', 'on') if $set =~ /SYSTEM/;
	fill_and_stop();
	cold_start($node, $read_errors, $set);
	$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET zero_damaged_pages');
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET ALL') if $set !~ /SYSTEM/;
}

# It is still on, in postgresql.auto.conf, from the start on.
fill_and_stop();
cold_start($node, $read_errors, 'ignore_checksum_failure from the start on');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET ALL');
$node->restart;
warm_restart($node, 'without such settings');

# ---------------------------------------------------------------- starts
# A mistake that ends the postmaster before it has a child costs nothing.
my $hba = slurp_file("$data/pg_hba.conf");
fill_and_stop();
$node->append_conf('pg_hba.conf', 'local all all nonsense');
for my $k (1 .. 2)
{
	start_fails($node, qr/FATAL:  could not load /, "mistake $k in pg_hba.conf");
	is(read_superblock(pool_file($node))->{state}, STATE_CLEAN, "mistake $k in pg_hba.conf: saved again");
}
unlink "$data/pg_hba.conf";
append_to_file("$data/pg_hba.conf", $hba);
$outcome = start_and_compare($node, 'pg_hba.conf is right again');
is($outcome->{start}, 'warm', 'pg_hba.conf is right again: warm');
is($outcome->{kept}, $outcome->{saved}, 'pg_hba.conf is right again: nothing is lost');

# Starts that wait for WAL: one is stopped, one is killed.  The command that they wait
# for stays, and must not hold the pool.
$node->append_conf('postgresql.conf', qq{restore_command = 'echo \$\$ > $waiting; exec sleep 600'});
for my $how ('stop', 'kill')
{
	my $name = "start cut off ($how)";

	fill_and_stop();
	append_to_file("$data/standby.signal", '');
	unlink $waiting;
	$offset = log_offset($node);
	start_nowait($node);
	$pid = wait_for_line($waiting);
	is(start_outcome($node, $offset)->{start}, 'warm', "$name: it had kept pages");
	is(read_superblock(pool_file($node))->{starts_from}, 1, "$name: the pool says that it is not ready");
	if ($how eq 'kill') { kill_all($node) }
	else { $node->stop }
	unlink "$data/standby.signal";
	if ($how eq 'stop')
	{
		$outcome = start_and_compare($node, $name);
		is($outcome->{start}, 'warm', "$name: no reason for care");
		end_command($pid);
		next;
	}
	start_without($node, qr/the last start with persistent cache pool "[^"]*" did not become ready/, $name);
	end_command($pid);
	change_tables($node);
	$node->stop;
	cold_start($node, qr/^the pool (is empty|file has 2097152 bytes)/, "$name, the start after the next one");
	warm_restart($node, "$name, and then");
}

# The same if nothing was kept: it cannot be why the start did not get ready.  And with
# pcache.required, which leaves only a cold start.
for my $case ([ 'nothing kept', 'immediate', 'cold', 'off', qr/^the server was not shut down cleanly$/ ],
	[ 'pcache.required', 'fast', 'warm', 'on', qr/^the server was not shut down cleanly$/ ])
{
	my ($name, $stop, $before, $required, $reason) = @$case;

	$node->append_conf('postgresql.conf', "pcache.required = $required");
	fill_and_stop($stop);
	append_to_file("$data/standby.signal", '');
	unlink $waiting;
	$offset = log_offset($node);
	start_nowait($node);
	$pid = wait_for_line($waiting);
	is(start_outcome($node, $offset)->{start}, $before, "start cut off, $name: it was $before");
	kill_all($node);
	unlink "$data/standby.signal";
	cold_start($node, $reason, "start cut off, $name");
	end_command($pid);
}

# And if the start was killed when the ledger was still that of the last stop.
fill_and_stop();
patch_superblock(pool_file($node), starts_from => 1);
{
	my $cut_off = qr/^the last start with persistent cache pool "[^"]*" did not become ready$/;
	my $name = 'start cut off early, pcache.required';
	my $foretold = verify_json($node);

	is($foretold->{next_start}, 'cold', "$name: foretold");
	like($foretold->{detail}, $cut_off, "$name: and why");
	cold_start($node, $cut_off, $name);
	warm_restart($node, "$name, and then");
}
$node->append_conf('postgresql.conf', q{pcache.required = off
restore_command = ''});

# A start from somewhere else than where the stop was.
$right = undef;
my $label = sub {
	my ($out) = run_command([ 'pg_controldata', $data ]);
	my ($checkpoint) = $out =~ /^Latest checkpoint location: +(\S+)/m;
	my ($redo) = $out =~ /^Latest checkpoint's REDO location: +(\S+)/m;
	my ($segment) = $out =~ /^Latest checkpoint's REDO WAL file: +(\S+)/m;

	append_to_file("$data/backup_label", "START WAL LOCATION: $redo (file $segment)\nCHECKPOINT LOCATION: $checkpoint\nBACKUP METHOD: pg_start_backup\nBACKUP FROM: primary\nSTART TIME: 2026-11-27 00:00:00 UTC\nLABEL: x\nSTART TIMELINE: 1\n");
};
cold_after_work('backup_label', qr/^the cluster starts from a backup$/, $label);
cold_after_work('a run in single-user mode', qr/^the pool was saved at checkpoint /,
	sub { single_user($node, "UPDATE t_heap SET filler = 'single' WHERE id % 7 = 0;\n") });
cold_after_work('pg_resetwal', qr/^the pool was saved at checkpoint /,
	sub { system_or_bail('pg_resetwal', '-f', $data) });
cold_after_work('pg_checksums', qr/^data checksums were switched on or off$/,
	sub { system_or_bail('pg_checksums', '--no-sync', major() < 18 ? '--enable' : '--disable', $data) });

# The files of an earlier stop, and of a server that runs.
fill_and_stop();
system_or_bail('cp', '-a', $data, "$data.copy");
$node->start;
cold_after_work('files of the stop before', qr/^the pool was saved at checkpoint /, sub { put_back($node, "$data.copy") });
system_or_bail('rm', '-rf', "$data.copy");
$node->backup('b');
cold_after_work('a base backup', qr/^the cluster was run without the pool, and not shut down cleanly$/,
	sub {
		my $conf = slurp_file("$data/postgresql.conf");

		system_or_bail('rm', '-rf', $data);
		system_or_bail('cp', '-a', $node->backup_dir . '/b', $data);
	});

# Recovery to the end of the archive: another timeline.
cold_after_work('recovery.signal', qr/^point-in-time recovery was requested$/,
	sub {
		append_to_file("$data/recovery.signal", '');
		$node->append_conf('postgresql.conf', q{restore_command = 'false'});
	});
$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
warm_restart($node, 'at last');

$node->stop;
done_testing();
