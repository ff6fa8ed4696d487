
# Copyright (c) 2026, the persistent-cache developers

# Mode always on standbys that are killed: in hot standby, in archive recovery, while they are
# promoted and after it, and with another timeline, another server or another state of their
# files before the next start.

use strict;
use warnings FATAL => 'all';

use PCacheKilled;
use PCacheModule;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# With checksums a session of a hot standby sets hints that no file has.
my $conf = "wal_keep_size = 512MB\nmax_prepared_transactions = 5\n";
my $primary = module_node('primary', standby => 1, mode => 'always', init => { extra => ['--data-checksums'] }, conf => $conf);
my $archive = $primary->basedir . '/archive';
my $logged = sub { join "\n", grep { !/^(t_unlogged|t_seq|indexes)/ } split /\n/, contents($_[0]) };
my ($offset, $outcome, $right, $lsn);

# A node that follows another one by streaming, or reads an archive only.
sub standby_of
{
	my ($name, $from, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init_from_backup($from, 'b', has_streaming => !$params{archive}, has_restoring => 0);
	append_to_file($node->data_dir . '/standby.signal', '') if $params{archive};
	module_settings($node, mode => 'always', conf => $conf . "restore_command = 'cp $archive/%f %p'\nrestart_after_crash = on\n");
	$node->start;
	return $node;
}

# Where WAL ends, and no more of it: a row of a transaction would do that.
sub inserted { my ($node) = @_; return $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()') }

sub replayed
{
	my ($node, $until) = @_;

	$node->poll_query_until('postgres', "SELECT pg_last_wal_replay_lsn() >= '$until'") or die 'replay does not get on';
	return;
}

# Work on a primary, which its standby has replayed and cached, with a restartpoint and
# without one after it.
sub work
{
	my ($from, $to) = @_;

	change_tables($from);
	$from->safe_psql('postgres', 'CHECKPOINT');
	$from->safe_psql('postgres', 'SELECT pg_switch_wal()');
	replay_until($from);
	$from->safe_psql('postgres', 'SELECT pg_switch_wal()');
	contents($to);
	$to->safe_psql('postgres', 'CHECKPOINT');
	change_tables($from);
	replay_until($from);
	$from->safe_psql('postgres', 'SELECT pg_switch_wal()');
	warm_pages($to);
	return;
}

mkdir $archive;
$primary->append_conf('postgresql.conf', "archive_mode = on\narchive_command = 'cp %p $archive/%f'\n");
$primary->start;
load_tables($primary);
$primary->safe_psql('postgres', $_) for 'CREATE TABLE h1 (id int)', 'CREATE TABLE h2 (id int)', 'CREATE TABLE x (id int)', 'CREATE SEQUENCE many',
	'CREATE DATABASE tpl', 'CREATE DATABASE moved', q{CREATE TABLESPACE ts LOCATION ''};
$primary->safe_psql($_, q{CREATE TABLE t (i int PRIMARY KEY, v int, filler text);
INSERT INTO t SELECT i, 0, repeat('x', 100) FROM generate_series(1, 2000) i}) for 'tpl', 'moved';
$primary->backup('b');
my $standby = standby_of('standby', $primary);

# ---------------------------------------------------------------- killed
for my $k (1, 2)
{
	work($primary, $standby);
	kill_seen($standby);
	start_warm($standby, "killed in hot standby, $k", at_least => 300);
}

# while it replays
work($primary, $standby);
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
change_tables($primary) for 1 .. 3;
$primary->safe_psql('postgres', q{SELECT count(setval('many', i)) FROM generate_series(1, 300000) i});
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
select undef, undef, undef, 0.05;
kill_all($standby);
replay_until($primary);
start_warm($standby, 'killed while it replays', at_least => 300);

# A restartpoint writes pg_control, and the worker is stopped.
work($primary, $standby);
kill 'STOP', child($standby->{_pid}, 'persistent cache') // die 'no worker';
work($primary, $standby);
kill_all($standby);
cold_start($standby, qr/^the pool knows of checkpoint /, 'a worker that was stopped, and a restartpoint');

# A stock server that replays more in between, but no checkpoint, and is killed, too.  What
# it has changed is read again, and pages in other files stay.
$primary->safe_psql('postgres', q{CREATE TABLE filler AS SELECT i, repeat('x', 1000) FROM generate_series(1, 30000) i});
work($primary, $standby);
kill_seen($standby);
pause_for_sighting(2);
stock_start($standby, '-w');
$primary->safe_psql('postgres', 'DELETE FROM t_toast WHERE id > 5; VACUUM t_toast; UPDATE t_heap SET grp = grp + 1 WHERE id < 100');
replay_until($primary);
contents($standby);
evict($standby);
$primary->safe_psql('postgres', q{INSERT INTO t_toast SELECT i, repeat(md5(i::text), 150) FROM generate_series(1000, 1100) i});
replay_until($primary);
contents($standby);
stock_stop($standby, 'immediate');
# it has changed the directories, too
start_warm($standby, 'a stock server and no checkpoint', at_least => 0, changed => 1);

# ---------------------------------------------------------------- files that redo replaces
my $databases = sub {
	my ($node) = @_;

	replayed($node, $lsn);
	return join ', ', map {
		my ($out, $err);

		# where a move is replayed again, its source is gone
		$node->psql($_, '', stdout => \$out, stderr => \$err,
			extra_params => [ map { ('-c', $_) } 'SELECT count(*), sum(v) FROM t',
				'SET enable_seqscan = off', 'SELECT count(*), sum(v) FROM t WHERE i > 0' ]);
		"$_: " . ($err eq '' ? $out : $err =~ s/.*(FATAL|ERROR): |LINE.*//sgr)
	} 'tpl', 'copy', 'moved';
};
work($primary, $standby);
$primary->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE tpl STRATEGY file_copy');
$primary->safe_psql('postgres', 'ALTER DATABASE moved SET TABLESPACE ts');
# The template is changed, and its files are.  So what is copied again is not what the pages
# of the copy are, without the library either.
$lsn = written_lsn($primary);
$databases->($standby);
$primary->safe_psql('tpl', 'UPDATE t SET v = v + 3 WHERE i % 3 = 0');
$lsn = written_lsn($primary);
$databases->($standby);
evict($standby);
$databases->($standby);
kill_seen($standby);
$right = oracle($standby, code => $databases);
$offset = log_offset($standby);
$standby->start;
$outcome = start_outcome($standby, $offset);
is($outcome->{start}, 'warm', 'databases that are copied again: warm') or diag($outcome->{reason});
is($databases->($standby), $right, 'databases that are copied again: contents are right');

# pg_rewind does not know tablespaces in the data directory
$primary->safe_psql('postgres', $_) for 'DROP DATABASE moved', 'DROP DATABASE copy', 'DROP TABLESPACE ts';

# ---------------------------------------------------------------- others
# A standby of a standby, and one that reads the archive only.
$standby->backup('b');
my $cascade = standby_of('cascade', $standby);
work($primary, $cascade);
kill_seen($cascade);
start_warm($cascade, 'a standby of a standby', at_least => 300);
kill_all($cascade);

my $reader = standby_of('reader', $primary, archive => 1);
work($primary, $reader);
kill_seen($reader);
start_warm($reader, 'a standby that reads an archive', at_least => 300);
# It knows of a timeline of which it has nothing yet.
kill_seen($reader);
append_to_file($reader->data_dir . '/pg_wal/00000002.history', "1\tF/0\tpromoted later\n");
start_warm($reader, 'a newer timeline in pg_wal', at_least => 300);
kill_all($reader);

# ---------------------------------------------------------------- back to the timeline before
# A standby is promoted, and another one follows it.  What was running then is void on the new
# timeline, and goes on at the old primary, to which the other one returns.
{
	my $name = 'back to the timeline before';
	my $fork = standby_of('fork', $primary);
	my $psql = $primary->background_psql('postgres');
	my $back;
	my $code = sub {
		my ($node) = @_;

		replayed($node, $lsn);
		return $node->safe_psql('postgres', 'SELECT count(*) FROM h3');
	};

	$primary->safe_psql('postgres', 'CREATE TABLE h3 (id int)');
	$psql->query('BEGIN; INSERT INTO h3 VALUES (3)');
	$primary->safe_psql('postgres', 'INSERT INTO x VALUES (0)');
	$primary->safe_psql('postgres', 'CHECKPOINT');
	$lsn = written_lsn($primary);
	replayed($fork, $lsn);
	$fork->backup('b');
	# the primary's archive is not to have the new timeline
	$fork->append_conf('postgresql.conf', 'archive_mode = off');
	$fork->restart;
	$back = standby_of('back', $fork);
	replayed($back, $lsn);
	$back->safe_psql('postgres', 'CHECKPOINT');
	warm_pages($back);
	is($back->safe_psql('postgres', 'SELECT count(*) FROM h3'), 0, "$name: the transaction is running");
	$fork->promote;
	# says what is running
	$fork->safe_psql('postgres', 'CHECKPOINT');
	replayed($back, written_lsn($fork));
	is($back->safe_psql('postgres', 'SELECT count(*) FROM h3; SELECT t_infomask & 768, lsn < redo_lsn FROM heap_page_items(get_raw_page(\'h3\', 0)), page_header(get_raw_page(\'h3\', 0)), pg_control_checkpoint();
SELECT isdirty FROM pg_buffercache WHERE relfilenode = pg_relation_filenode(\'h3\')'), "0\n512|t\nf", "$name: a row with the hint that it is void, in a clean page");
	pause_for_sighting();
	kill_all($_) for $back, $fork;
	$psql->query('COMMIT');
	$psql->quit;
	$lsn = written_lsn($primary);
	$back->append_conf('postgresql.conf', "recovery_target_timeline = 1\nprimary_conninfo = '" . $primary->connstr . "'");
	$right = oracle($back, code => $code);
	is($right, 1, "$name: a row without the library");
	$offset = log_offset($back);
	$back->start;
	is($code->($back), $right, "$name: contents are right");
	$outcome = start_outcome($back, $offset);
	like($outcome->{reason} // "warm, kept $outcome->{kept}", qr/^a prepared transaction was rolled back, or a timeline began, at /, "$name: cold");
	kill_all($back);
}

# ---------------------------------------------------------------- another timeline
# Three standbys.  The first two replay more than the last one, which is promoted.  The first
# one has received all of that when a snapshot of its files is made, and has replayed it when
# it is killed; then its file system is rolled back.
my ($lagging, $ahead, $next) = map { standby_of($_, $primary) } 'lagging', 'ahead', 'next';
my $psql = $primary->background_psql('postgres');
$psql->query('BEGIN; INSERT INTO h1 VALUES (1)');
$primary->safe_psql('postgres', q{BEGIN; INSERT INTO h2 VALUES (2); PREPARE TRANSACTION 'x'});
$primary->safe_psql('postgres', 'INSERT INTO x VALUES (1)');
$primary->safe_psql('postgres', 'CHECKPOINT');
$lsn = written_lsn($primary);
for my $node ($lagging, $ahead)
{
	replayed($node, $lsn);
	$node->safe_psql('postgres', 'CHECKPOINT');
	warm_pages($node);
	$node->safe_psql('postgres', 'SELECT count(*) FROM h1; SELECT count(*) FROM h2');
}
replayed($next, $lsn);
$next->stop;
my $hint = q{SELECT t_infomask & 768, lsn < redo_lsn FROM heap_page_items(get_raw_page('h%d', 0)), page_header(get_raw_page('h%d', 0)), pg_control_checkpoint();
SELECT isdirty FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('h%d')};
$lagging->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
$psql->query('COMMIT');
$psql->quit;
$primary->safe_psql('postgres', 'INSERT INTO x VALUES (2)');
$lsn = inserted($primary);
$lagging->poll_query_until('postgres', "SELECT pg_last_wal_receive_lsn() >= '$lsn'") or die;
pause_for_sighting();
frozen_copy($lagging, $lagging->data_dir . '.copy');
$lagging->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
replayed($lagging, $lsn);
# a page is written, so from here on recovery has to reach the commit
evict($lagging);
warm_pages($lagging);
is($lagging->safe_psql('postgres', 'SELECT count(*) FROM h1;' . $hint =~ s/%d/1/gr), "1\n256|t\nf", 'lagging: a row with the hint that it is valid, in a clean page');
kill_seen($lagging);
exchange($lagging, $lagging->data_dir . '.copy');
$primary->safe_psql('postgres', q{ROLLBACK PREPARED 'x'});
replayed($ahead, inserted($primary));
is($ahead->safe_psql('postgres', 'SELECT count(*) FROM h2;' . $hint =~ s/%d/2/gr), "0\n512|t\nf", 'ahead: a row with the hint that it is void, in a clean page');
kill_seen($ahead);
kill_all($_) for $standby, $primary;

$next->append_conf('postgresql.conf', "primary_conninfo = ''\narchive_mode = on\narchive_command = 'cp %p $archive/%f'\n");
$next->start;
$next->promote;
$next->safe_psql('postgres', q{COMMIT PREPARED 'x'});
$next->safe_psql('postgres', 'SELECT pg_switch_wal()');
replay_until($next);
for my $case ([ $lagging, 'h1', 0, qr/^recovery has to reach \S+ only, the pool's server last saw / ],
	[ $ahead, 'h2', 1, qr/^a prepared transaction was rolled back, or a timeline began, at / ])
{
	my ($node, $table, $rows, $reason) = @$case;
	my $name = 'another timeline, ' . $node->name;
	my $code = sub { $logged->($_[0]) . ' ' . $_[0]->safe_psql('postgres', "SELECT count(*) FROM $table") };

	$node->append_conf('postgresql.conf', "primary_conninfo = '" . $next->connstr . "'");
	$right = oracle($node, code => $code);
	like($right, qr/ $rows$/, "$name: $rows rows without the library");
	$offset = log_offset($node);
	$node->start;
	is($code->($node), $right, "$name: contents are right");
	$outcome = start_outcome($node, $offset);
	like($outcome->{reason} // "warm, kept $outcome->{kept}", $reason, "$name: cold");
}
# once that is before the redo point it is warm again
$lsn = written_lsn($next);
replayed($ahead, $lsn);
work($next, $ahead);
kill_seen($ahead);
start_warm($ahead, 'another timeline, and then', at_least => 300);

# The old primary, which was killed, is rewound; it has hints of what is lost, too.
my $settings = slurp_file($primary->data_dir . '/postgresql.conf');
unlink $primary->data_dir . '/postmaster.pid';
system_or_bail('pg_rewind', '--no-sync', '--target-pgdata' => $primary->data_dir, '--source-server' => $next->connstr('postgres'));
unlink $primary->data_dir . '/postgresql.conf';
append_to_file($primary->data_dir . '/postgresql.conf', $settings);
$primary->append_conf('postgresql.conf', "primary_conninfo = '" . $next->connstr . "'");
append_to_file($primary->data_dir . '/standby.signal', '');
replay_until($next);
$outcome = start_and_compare($primary, 'pg_rewind');
is($outcome->{start}, 'cold', 'pg_rewind: cold') or diag($outcome->{log});
is($logged->($primary), $logged->($next), 'pg_rewind: it has what its primary has');

# ---------------------------------------------------------------- promotion
kill_all($_) for $lagging, $primary;
for my $delay (0, 0.04)
{
	work($next, $ahead);
	pause_for_sighting();
	system_or_bail('pg_ctl', '--no-wait', '-D' => $ahead->data_dir, 'promote');
	select undef, undef, undef, $delay;
	kill_all($ahead);
	$outcome = start_and_compare($ahead, "killed $delay s after the promotion began");
	note($outcome->{start} . ($outcome->{reason} // ''));
	next if $ahead->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 't';
	kill_all($ahead);
	$next->backup('b') if !-e $next->backup_dir . '/b';
	# whoever follows $next must not find the timeline of the one that was promoted
	unlink glob "$archive/0000000[3-9]*";
	$ahead = standby_of("ahead_$delay" =~ tr/./_/r, $next);
}

# The checkpoint of the promotion does not get on, so redo begins on the old timeline.
work($next, $ahead);
kill 'STOP', child($ahead->{_pid}, 'checkpointer') // die 'no checkpointer';
$ahead->promote;
change_tables($ahead);
contents($ahead);
kill_seen($ahead);
start_warm($ahead, 'killed after a promotion', at_least => 300);

$ahead->stop;
$next->stop;
done_testing();
