
# Copyright (c) 2026, the persistent-cache developers

# Redo of CREATE DATABASE by file copy reads the files of the template.  Redo
# that comes to the same record again must not find there what was changed later.
# The oracle is a copy of the cluster that starts without the pool.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary',
	mode => undef,
	init => { allows_streaming => 1 },
	conf => "allow_in_place_tablespaces = on\nwal_keep_size = 512MB");
my %databases;
my $rows = 1000;
my ($standby, $outcome, $offset, $copy, $oid);

# How many rows there are in each database, by sequential scan and by index.
sub counts
{
	my ($node, @databases) = @_;

	return join ', ', map {
		my $db = $_;
		"$db: " . join '/', map {
			my ($stdout, $stderr);

			# not by standard input: psql ends before it reads that if there is no such database
			my $rc = $node->psql($db, '', stdout => \$stdout, stderr => \$stderr, extra_params => [ map { ('-c', $_) } "SET enable_seqscan = $_", 'SET enable_indexscan = on', 'SET enable_bitmapscan = off', 'SELECT count(*) FROM t WHERE i > 0' ]);
			$rc == 0 ? $stdout : $stderr =~ s/.*FATAL: //r;
		} 'on', 'off'
	} @databases;
}

# What a start without the pool makes of a cluster that is down.
sub without_pool
{
	my ($node, @databases) = @_;
	my $name = $node->name . '_' . ++$copy;
	my $other = PostgreSQL::Test::Cluster->new($name);
	my $result;

	PostgreSQL::Test::RecursiveCopy::copypath($node->data_dir, $other->data_dir,
		filterfn => sub { $_[0] !~ m{^(pg_pcache.*|postmaster\.pid)$} });
	chmod 0700, $other->data_dir;
	$other->append_conf('postgresql.conf', 'port = ' . $other->port . "\nprimary_conninfo = ''\nunix_socket_directories = '" . $other->host . "'");
	$other->adjust_conf('postgresql.conf', 'persistent_cache_mode', undef);
	$other->start;
	$result = counts($other, @databases);
	$other->stop('immediate');
	return $result;
}

# A new database by file copy, and later rows in the template; all of it is
# replayed, and nothing of it behind a restartpoint.
sub copy_and_change
{
	my ($name) = @_;

	$primary->safe_psql('postgres', "CREATE DATABASE $name TEMPLATE tpl STRATEGY file_copy");
	$databases{$name} = $rows;
	change();
	return;
}

sub change
{
	$primary->safe_psql('tpl', "INSERT INTO t SELECT i, repeat('x', 300) FROM generate_series($rows + 1, $rows + 600) i");
	$rows += 600;
	$primary->wait_for_replay_catchup($standby);
	$standby->safe_psql('tpl', 'SELECT sum(length(filler)) FROM t');
	return;
}

sub expected
{
	return join ', ', map { "$_: $databases{$_}/$databases{$_}" } @_;
}

sub checkpointer
{
	return $_[0]->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'});
}

# CREATE DATABASE by file copy of a database with large files, up to the checkpoint
# that follows, whose process is stopped.  Returns the session.
sub copy_without_checkpoint
{
	my ($node, $template) = @_;
	my %before = map { $_ => 1 } glob $node->data_dir . '/base/*';
	my $checkpointer = checkpointer($node);
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$session->query_until(qr/begun/, "\\echo begun\nCREATE DATABASE early TEMPLATE $template STRATEGY file_copy;\n");
	for (1 .. 100000)
	{
		last if grep { !$before{$_} } glob $node->data_dir . '/base/*';
		select undef, undef, undef, 0.001;
	}
	kill 'STOP', $checkpointer;
	ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event LIKE 'Checkpoint%' AND query LIKE 'CREATE DATABASE%'}),
		"$template: the copy is made, and waits for its checkpoint");
	return $session;
}

# The cluster starts, and has what it must have.
sub right
{
	my ($node, $name, @databases) = @_;

	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is(counts($node, @databases), expected(@databases), "$name: each database has its own rows");
	return;
}

$primary->start;
$primary->safe_psql('postgres', $_) for 'CREATE DATABASE tpl', q{CREATE TABLESPACE ts LOCATION ''};
$primary->safe_psql('tpl', q{CREATE TABLE t (i int PRIMARY KEY, filler text) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, repeat('x', 300) FROM generate_series(1, 1000) i});
$primary->safe_psql('postgres', 'CREATE TABLE other AS SELECT i, repeat(md5(i::text), 20) AS filler FROM generate_series(1, 3000) i');
$primary->backup('b');
$standby = new_standby('standby', $primary, 'b', mode => 'always');
$standby->append_conf('postgresql.conf', 'persistent_cache_seal_delay = 10ms');
$standby->start;

# Crashes, again and again from the same restartpoint.
copy_and_change('d1');
for my $crash (1 .. 2)
{
	$standby->safe_psql('postgres', 'SELECT sum(length(filler)) FROM other');
	wait_for_seals();
	kill_all($standby);
	is(without_pool($standby, 'd1'), expected('d1'), "crash $crash: without the pool") if $crash == 1;
	right($standby, "crash $crash", 'd1');
	is($outcome->{start}, 'warm', "crash $crash: other pages are kept");
	cmp_ok($outcome->{dropped}{'copied database'} // 0, '>', 10, "crash $crash: those of the template are not");
	change();
}

# A clean stop that leaves the redo point behind, in both modes.
for my $mode ('always', 'planned_restart', 'always')
{
	my $database = "stop_$mode" . ($databases{"stop_$mode"} ? '_again' : '');

	copy_and_change($database);
	$standby->stop;
	set_mode($standby, $mode);
	is(without_pool($standby, 'd1', $database), expected('d1', $database), "stop ($database): without the pool");
	right($standby, "stop ($database)", 'd1', $database);
	is($outcome->{start}, 'warm', "stop ($database): other pages are kept");
}

# A stop does not write pages of such a database.  A copy that is cancelled before
# its checkpoint lets the source change while no restartpoint gets beyond it.
$primary->safe_psql('postgres', 'CREATE DATABASE big TEMPLATE tpl');
$databases{big} = $rows;
$primary->safe_psql('big', q{CREATE TABLE large AS SELECT repeat('x', 1000) FROM generate_series(1, 100000); CHECKPOINT});
for my $mode ('planned_restart', 'always')
{
	my $file = $standby->data_dir . '/' . $primary->safe_psql('big', q{SELECT pg_relation_filepath('t')});
	my $session = copy_without_checkpoint($primary, 'big');

	$primary->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CREATE DATABASE%' AND pid <> pg_backend_pid()});
	eval { $session->quit };
	$primary->wait_for_replay_catchup($standby);
	$standby->safe_psql('postgres', 'CHECKPOINT');    # so that the stop makes no restartpoint
	$primary->safe_psql('big', q{UPDATE t SET filler = reverse(filler || 'y') WHERE i < 300});
	$primary->wait_for_replay_catchup($standby);
	my $before = slurp_file($file);
	$standby->stop;
	ok(slurp_file($file) eq $before, "stop with a later source ($mode): its pages are not written");
	kill 'CONT', checkpointer($primary);
	set_mode($standby, $mode);
	right($standby, "stop with a later source ($mode)", 'd1', 'big');
	is($outcome->{start}, 'warm', "stop with a later source ($mode): other pages are kept");
	cmp_ok($outcome->{dropped}{'copied database'} // 0, '>', 0, "stop with a later source ($mode): its pages are not");
}

# A later redo point removes the note, and the template is warm again.
$primary->safe_psql('postgres', 'CHECKPOINT');
$primary->wait_for_replay_catchup($standby);
$standby->safe_psql('postgres', 'CHECKPOINT');
change();
wait_for_seals();
kill_all($standby);
right($standby, 'after a restartpoint', 'd1');
is($outcome->{dropped}{'copied database'} // 0, 0, 'after a restartpoint: the pages of the template are kept');

# A note of more databases than there is room for, and one that is damaged.
for my $note ('overflow', 'damaged')
{
	kill_all($standby);
	my $entry = pack('QL', 1 << 60, 0);
	write_bytes(pool_file($standby), 16384 + 255 * 16, $entry . pack('L', crc32c($entry) ^ ($note eq 'damaged' ? 1 : 0)));
	right($standby, $note, 'd1');
	is($outcome->{start}, 'cold', "$note: nothing is kept");
	like($outcome->{reason}, $note eq 'damaged' ? qr/notes of that are damaged/ : qr/files of more than 255 databases/, "$note: the log says why");
	wait_for_seals();
}
kill_all($standby);
right($standby, 'after a cold start', 'd1');
is($outcome->{start}, 'warm', 'after a cold start: the notes are gone');

# A bad block among the notes: pg_pcache exchanges its sector, and puts back what
# can be read.  What cannot be read may have been a note.
$standby->stop;
my $entry = pack('QL', 1 << 60, 4711);
$entry .= pack('L', crc32c($entry));
write_bytes(pool_file($standby), 16384, $entry);
for my $case ([ 'beside a note', 16384 + 512, 0 ], [ 'below a note', 16384, 2 ])
{
	my ($name, $at, $rc) = @$case;
	local $ENV{PG_PCACHE_BAD_BLOCKS} = "$at:512";

	is((pcache($standby, 'rebuild'))[0], $rc, "bad block $name: rebuild");
	delete $ENV{PG_PCACHE_BAD_BLOCKS};
	is(verify_json($standby)->{rc}, $rc, "bad block $name: verify");
	is(read_bytes(pool_file($standby), 16384, 16), $rc == 0 ? $entry : "\xFF" x 16, "bad block $name: the note");
}
right($standby, 'bad block below a note', 'd1');
is($outcome->{start}, 'cold', 'bad block below a note: nothing is kept');
wait_for_seals();

# A database is moved.  Redo of the move does not find the old directory any more,
# and neither would the unpatched server.
$primary->safe_psql('postgres', 'CREATE DATABASE m TEMPLATE tpl');
$databases{m} = $rows;
$primary->safe_psql('postgres', 'CHECKPOINT');
$primary->wait_for_replay_catchup($standby);
$standby->safe_psql('postgres', 'CHECKPOINT');
$primary->safe_psql('postgres', 'ALTER DATABASE m SET TABLESPACE ts');
$primary->safe_psql('m', 'UPDATE t SET filler = upper(filler)');
$primary->wait_for_replay_catchup($standby);
$standby->safe_psql('m', 'SELECT sum(length(filler)) FROM t');
wait_for_seals();
kill_all($standby);
my $moved = without_pool($standby, 'm');
$offset = log_offset($standby);
$standby->start;
$outcome = start_outcome($standby, $offset);
is(counts($standby, 'm'), $moved, 'a moved database: as without the pool');
cmp_ok($outcome->{dropped}{'copied database'} // 0, '>', 10, 'a moved database: its pages are not kept');
$primary->safe_psql('postgres', 'DROP DATABASE m');
$primary->safe_psql('postgres', 'CHECKPOINT');
$primary->wait_for_replay_catchup($standby);
$standby->safe_psql('postgres', 'CHECKPOINT');

# A standby is promoted, and crashes before its first checkpoint.
copy_and_change('promoted');
$primary->stop;
kill 'STOP', checkpointer($standby);
$standby->promote;
$standby->safe_psql('tpl', "INSERT INTO t SELECT i, repeat('y', 300) FROM generate_series($rows + 1, $rows + 600) i");
$rows += 600;
wait_for_seals();
kill_all($standby);
is(without_pool($standby, 'promoted'), expected('promoted'), 'promoted: without the pool');
right($standby, 'promoted', 'promoted');
cmp_ok($outcome->{dropped}{'copied database'} // 0, '>', 10, 'promoted: the pages of the template are not kept');

# A primary crashes between the copy and the checkpoint of CREATE DATABASE, opens
# before the checkpoint, and crashes again.
$standby->safe_psql('postgres', 'CHECKPOINT');
$standby->safe_psql('tpl', q{ALTER TABLE t ALTER filler SET STORAGE external;
CREATE TABLE large AS SELECT repeat('x', 1000) FROM generate_series(1, 100000)});
my $session = copy_without_checkpoint($standby, 'tpl');
$standby->safe_psql('postgres', 'SELECT pg_switch_wal()');
kill_all($standby);
eval { $session->quit };
$offset = log_offset($standby);
$standby->start;
like(slurp_file($standby->logfile, $offset), qr/connections are allowed before the checkpoint/, 'early: connections are allowed before the checkpoint');
$databases{tpl} = $rows + 600;
$standby->safe_psql('tpl', "INSERT INTO t SELECT i, repeat('z', 300) FROM generate_series($rows + 1, $rows + 600) i");
wait_for_seals();
kill_all($standby);
right($standby, 'early', 'tpl', 'promoted');
cmp_ok($outcome->{dropped}{'copied database'} // 0, '>', 10, 'early: the pages of the template are not kept');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM pg_database WHERE datname = 'early'}), 0, 'early: the copy is nobody\'s');
$standby->stop;
done_testing();
