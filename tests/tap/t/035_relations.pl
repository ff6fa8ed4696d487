
# Copyright (c) 2026, the persistent-cache developers

# Relations that are dropped, truncated, rewritten or copied, around restarts:
# no stale page, ever.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', shared_buffers => '64MB');

$node->start;
load_data($node);

# Each case: what to do before the restart, what to do on the kept pages after
# it, and a query with its answer after that.  Two restarts at least, so that
# what was done to kept pages is kept as well.
my $filled = 'INSERT INTO %1$s SELECT i, repeat(md5(i::text), 5) FROM generate_series(1, 3000) i';
my @cases = (
	[
		'dropped after a restart and created again',
		'CREATE TABLE d (id int PRIMARY KEY, v text); ' . sprintf($filled, 'd'),
		q{DROP TABLE d; CREATE TABLE d (id int PRIMARY KEY, v text); INSERT INTO d VALUES (1, 'new')},
		'SELECT id, v FROM d', '1|new'
	],
	[
		'dropped before a restart',
		'CREATE TABLE e (id int, v text); ' . sprintf($filled, 'e') . '; DROP TABLE e',
		q{CREATE TABLE e (id int, v text); INSERT INTO e VALUES (2, 'new')},
		'SELECT id, v FROM e', '2|new'
	],
	[
		'truncated after a restart',
		'CREATE TABLE tr (id int PRIMARY KEY, v text); ' . sprintf($filled, 'tr'),
		q{TRUNCATE tr; INSERT INTO tr VALUES (3, 'new')},
		'SELECT id, v FROM tr', '3|new'
	],
	[
		'truncated in its own transaction',
		'SELECT 1',
		'BEGIN; CREATE TABLE ti (id int, v text); ' . sprintf($filled, 'ti')
		  . '; TRUNCATE ti; ' . sprintf($filled, 'ti') . '; COMMIT',
		'SELECT count(*), sum(id) FROM ti', '3000|4501500'
	],
	[
		'tail truncated by VACUUM after a restart',
		'CREATE TABLE va (id int, v text); ' . sprintf($filled, 'va'),
		'DELETE FROM va WHERE id > 100; VACUUM va; ' . sprintf($filled, 'va'),
		'SELECT count(*), sum(id) FROM va', '3100|4506550'
	],
	[
		'VACUUM FULL after a restart',
		'CREATE TABLE vf (id int PRIMARY KEY, v text); ' . sprintf($filled, 'vf')
		  . '; DELETE FROM vf WHERE id % 2 = 0',
		'VACUUM FULL vf',
		'SELECT count(*), sum(id) FROM vf', '1500|2250000'
	],
	[
		'VACUUM FULL before a restart',
		'CREATE TABLE vb (id int PRIMARY KEY, v text); ' . sprintf($filled, 'vb')
		  . '; DELETE FROM vb WHERE id % 2 = 0; VACUUM FULL vb',
		'UPDATE vb SET id = id + 1',
		'SELECT count(*), sum(id) FROM vb', '1500|2251500'
	],
	[
		'rewritten by ALTER TABLE',
		'CREATE TABLE al (id int, v text); ' . sprintf($filled, 'al'),
		'ALTER TABLE al ALTER id TYPE bigint USING id * 2',
		'SELECT count(*), sum(id) FROM al', '3000|9003000'
	],
	[
		'indexes made anew',
		'CREATE TABLE ri (id int PRIMARY KEY, v text); ' . sprintf($filled, 'ri'),
		'UPDATE ri SET id = id + 10000; REINDEX TABLE ri; SET enable_seqscan = off',
		'SELECT count(*), sum(id) FROM ri', '3000|34501500'
	],
	[
		'unlogged made logged',
		'CREATE UNLOGGED TABLE ul (id int, v text); ' . sprintf($filled, 'ul'),
		'ALTER TABLE ul SET LOGGED',
		'SELECT count(*), sum(id) FROM ul', '3000|4501500'
	],
	[
		'materialized view refreshed',
		'CREATE TABLE mt (id int, v text); ' . sprintf($filled, 'mt')
		  . '; CREATE MATERIALIZED VIEW mv AS SELECT id FROM mt',
		'DELETE FROM mt WHERE id > 10; REFRESH MATERIALIZED VIEW mv',
		'SELECT count(*), sum(id) FROM mv', '10|55'
	]);

for my $case (@cases)
{
	my ($name, $before) = @$case;
	$node->safe_psql('postgres', $before);
}
restart_kept('all made');
for my $case (@cases)
{
	my ($name, undef, $after, $query, $answer) = @$case;
	$node->safe_psql('postgres', $after);
	is($node->safe_psql('postgres', $query), $answer, "$name: at once");
}
restart_kept('all changed');
for my $case (@cases)
{
	my ($name, undef, undef, $query, $answer) = @$case;
	is($node->safe_psql('postgres', $query), $answer, "$name: after a restart");
}
pages_equal_disk($node, 'all changed');

# Databases: created by both strategies from a template that is cached, and
# dropped and created again under the same name.
for my $strategy (qw(wal_log file_copy))
{
	my $expected = checksums($node);

	for my $round (1, 2)
	{
		my $name = "$strategy, round $round";

		$node->safe_psql('template1', 'CHECKPOINT');
		$node->safe_psql('template1',
			"CREATE DATABASE copy TEMPLATE postgres STRATEGY $strategy");
		is(checksums($node, db => 'copy'), $expected, "$name: contents at once");
		$node->safe_psql('copy',
			'UPDATE t_heap SET grp = -1; TRUNCATE t_kinds; SELECT sum(pg_prewarm(oid)) FROM pg_class WHERE relname ~ $$^t_$$ AND relkind IN ($$r$$, $$i$$)');

		my $changed = checksums($node, db => 'copy');
		restart_kept($name);
		is(checksums($node, db => 'copy'), $changed, "$name: contents after a restart");
		is(checksums($node), $expected, "$name: the template has not changed");
		$node->safe_psql('template1', 'DROP DATABASE copy');
		is($node->safe_psql('postgres', q{
SELECT count(*) FROM pg_buffercache WHERE reldatabase <> 0
AND reldatabase NOT IN (SELECT oid FROM pg_database)}),
			0, "$name: no page of the dropped database is cached");
		restart_kept("$name, dropped");
	}

	# an update, so that the next copy is not like this one
	$node->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 10 = 0');
}

# Tablespaces: moved there and back, around restarts.
my $location = PostgreSQL::Test::Utils::tempdir();
my $expected = checksums($node);

$node->safe_psql('postgres', "CREATE TABLESPACE ts LOCATION '$location'");
$node->safe_psql('postgres', 'ALTER TABLE t_heap SET TABLESPACE ts');
restart_kept('moved to a tablespace');
is(checksums($node), $expected, 'moved to a tablespace: contents are the same');
is(relation_reads($node), 0, 'moved to a tablespace: no block is read again');
$node->safe_psql('postgres', 'ALTER TABLE t_heap SET TABLESPACE pg_default');
$node->safe_psql('postgres', 'DROP TABLESPACE ts');
restart_kept('moved back');
is(checksums($node), $expected, 'moved back: contents are the same');

# Files that vanish behind the server's back, as after a crash of the host:
# their pages go, others stay.
my $path = $node->data_dir . '/'
  . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('mt')});
$node->safe_psql('postgres', "SELECT pg_prewarm('mt'), pg_prewarm('t_heap')");
my $pages = $node->safe_psql('postgres', q{
SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('mt') AND relforknumber = 0});
my $offset = log_offset($node);
my $valid = valid_buffers($node);
$node->stop;
unlink $path or die $!;
$node->start;
my $outcome = is_warm($node, $offset, 0, 'a file is missing');
is($outcome->{dropped}{'no such relation'}, $pages,
	'a file is missing: its pages were dropped');
cmp_ok($outcome->{kept}, '>=', $valid - $pages - 1,
	'a file is missing: the others were kept');
is(checksums($node), $expected, 'a file is missing: contents of others are the same');

$node->stop;
done_testing();

sub restart_kept
{
	my ($name) = @_;
	my $offset = log_offset($node);
	my $valid = warm_up($node);

	$node->restart;
	return is_warm($node, $offset, $valid, $name);
}
