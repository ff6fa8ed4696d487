
# Copyright (c) 2026, the persistent-cache developers

# Redo that copies the files of a database below the buffer manager: on a running standby
# no replayed change is lost, and kept pages do not outlive the files that they are of.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PCache::Wal qw(lsn_number);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = module_node('primary', standby => 1, conf => "wal_keep_size = 512MB\n");
my $standby = PostgreSQL::Test::Cluster->new('standby');

# What a standby has of these databases, once it has replayed all.
sub rows
{
	my ($node, @databases) = @_;
	my $lsn = $primary->{_pid} ? written_lsn($primary) : '0/0';

	$node->poll_query_until('postgres', "SELECT NOT pg_is_in_recovery() OR pg_last_wal_replay_lsn() >= '$lsn'") or die;
	return join ', ', map {
		my ($out, $err);

		# a database may be gone
		$node->psql($_, '', stdout => \$out, stderr => \$err,
			extra_params => [ map { ('-c', $_) } 'SELECT count(*), sum(v) FROM t',
				'SET enable_seqscan = off', 'SELECT count(*), sum(v) FROM t WHERE i > 0' ]);
		"$_: " . ($err eq '' ? $out : $err =~ s/.*(FATAL|ERROR): |LINE.*//sgr)
	} @databases;
}

# The redo point of a node that is down, or of its last restartpoint.
sub redo_of
{
	my ($out) = run_command([ 'pg_controldata', $_[0]->data_dir ]);
	return $out =~ /^Latest checkpoint's REDO location: +(\S+)/m ? $1 : die $out;
}

$primary->start;
$primary->safe_psql('postgres', $_) for 'CREATE DATABASE tpl', 'CREATE DATABASE moved', q{CREATE TABLESPACE ts LOCATION ''};
$primary->safe_psql($_, q{CREATE TABLE t (i int PRIMARY KEY, v int, filler text);
INSERT INTO t SELECT i, 0, repeat('x', 100) FROM generate_series(1, 5000) i}) for 'tpl', 'moved';
$primary->backup('b');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
module_settings($standby);
$standby->start;
rows($standby, 'tpl', 'moved');

# Pages that were kept, and are changed by replay, when their database is moved: what was
# replayed on them is not replayed again.
$standby->safe_psql('postgres', 'CHECKPOINT');
$standby->restart;
for my $there ('ts', 'pg_default')
{
	$primary->safe_psql('moved', 'UPDATE t SET v = v + 1 WHERE i % 2 = 0');
	rows($standby, 'moved');
	# replay may not wait for a session that has pinned a page: it is ended later
	my $session = $standby->background_psql('moved', on_error_stop => 0);
	$session->query('BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; FETCH c');
	$primary->safe_psql('postgres', "ALTER DATABASE moved SET TABLESPACE $there");
	is(rows($standby, 'moved'), rows($primary, 'moved'), "a database is moved to $there, and no change is lost");
	eval { $session->quit };
}

# Replay comes to the same copy again after a restart.
$primary->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE tpl STRATEGY file_copy');
$primary->safe_psql($_, 'UPDATE t SET v = v + 3 WHERE i % 3 = 0') for 'copy', 'tpl';
is(rows($standby, 'copy', 'tpl'), rows($primary, 'copy', 'tpl'), 'a copied database');
for my $k (1 .. 2)
{
	$standby->stop;
	my $right = oracle($standby, code => sub { rows($_[0], 'copy', 'tpl', 'moved') });
	my $offset = log_offset($standby);
	$standby->start;
	is(start_outcome($standby, $offset)->{start}, 'warm', "restart $k: warm");
	is(rows($standby, 'copy', 'tpl', 'moved'), $right, "restart $k: as without the library");
	is($right, rows($primary, 'copy', 'tpl', 'moved'), "restart $k: as on the primary");
	$primary->safe_psql($_, 'UPDATE t SET v = v + 1 WHERE i % 5 = 0') for 'copy', 'tpl';
}

# A move that is behind the redo point: the source is gone when it is replayed once more,
# so its target becomes empty.  A page that was kept would still be there.
$primary->safe_psql('postgres', 'CHECKPOINT');
rows($standby, 'tpl');
$standby->safe_psql('postgres', 'CHECKPOINT');
$primary->safe_psql('postgres', 'ALTER DATABASE moved SET TABLESPACE ts');
rows($standby, 'moved');
$standby->stop;
$primary->stop;
my $right = oracle($standby, code => sub { rows($_[0], 'moved') });
$standby->start;
is(rows($standby, 'moved'), $right, 'a move that is replayed again: as without the library');

# And on a primary, which is killed.
$standby->stop;
$primary->start;
$primary->safe_psql('postgres', 'CREATE DATABASE again TEMPLATE tpl STRATEGY file_copy');
$primary->safe_psql('tpl', 'UPDATE t SET v = 1');
rows($primary, 'again', 'tpl');
kill_all($primary);
$right = oracle($primary, code => sub { rows($_[0], 'again', 'tpl') });
$primary->start;
is(rows($primary, 'again', 'tpl'), $right, 'a primary that was killed');
$primary->restart;
is(rows($primary, 'again', 'tpl'), $right, '... and restarted');

# A copy is replayed once more, and a later database with the same OID has pages in shared
# buffers.  What is replayed on the first one without page images must not find those.
# Replay has met a table that is gone, so no restartpoint came after the copy.
$primary->append_conf('postgresql.conf', 'full_page_writes = off');
$primary->restart;
$primary->safe_psql('tpl', 'VACUUM (FREEZE) t');
$primary->safe_psql('postgres', 'CREATE DATABASE empty TEMPLATE tpl STRATEGY file_copy');
$primary->safe_psql('empty', $_) for 'DELETE FROM t WHERE i > 1', 'VACUUM (FREEZE, TRUNCATE off) t';
$primary->safe_psql('postgres', $_) for 'CREATE TABLE gone AS SELECT 1 AS i', 'VACUUM (FREEZE) gone', 'CHECKPOINT';
$standby->start;
rows($standby, 'tpl');
$standby->safe_psql('postgres', 'CHECKPOINT');
my $redo = redo_of($standby);
$primary->safe_psql(@$_) for
  [ 'postgres', 'UPDATE gone SET i = 2' ],
  [ 'postgres', 'CREATE DATABASE reused OID = 99999 TEMPLATE tpl STRATEGY file_copy' ],
  [ 'reused', 'UPDATE t SET v = v + 1' ],
  [ 'postgres', 'DROP DATABASE reused' ],
  [ 'postgres', 'CREATE DATABASE reused OID = 99999 TEMPLATE empty STRATEGY file_copy' ],
  [ 'postgres', 'DROP TABLE gone' ];
rows($standby, 'reused');
kill_all($standby);
$standby->start;
rows($standby, 'reused');
$standby->stop;
is(redo_of($standby), $redo, 'a database that is another one later: the copy is replayed again');
cmp_ok((grep { $_->{db_oid} == 99999 && $_->{fork_number} == 0 && $_->{page_lsn} < lsn_number($redo) } pool_entries(pool_file($standby))),
	'>', 50, '... and its pages are saved');
$right = oracle($standby, code => sub { rows($_[0], 'reused') });
my $offset = log_offset($standby);
ok($standby->start(fail_ok => 1), '... and it starts');
is(start_outcome($standby, $offset)->{start}, 'warm', '... warm');
is(rows($standby, 'reused'), $right, '... as without the library');

$standby->stop;
$primary->stop;
done_testing();
