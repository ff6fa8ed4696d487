
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Workload - random SQL for the torture test, from a seed

=head1 DESCRIPTION

sql_stream() returns the statements for one psql session.  A session has
tables of its own (mostly), so that it waits for others only at times; errors
are expected and ignored.

No two sessions ever create the same name.  CREATE ... IF NOT EXISTS does not
protect against another session that is about to create it: one of them fails
with a duplicate key in pg_class, on any server, and a duplicate key in a
catalog is what torture.pl takes for damage.

=cut

package Workload;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

our @EXPORT = qw(setup_sql sql_stream queue_scripts);
our @EXPORT_OK = qw(pick number);

my $TABLES = 5;
my $ROWS = 3000;    # at most, per INSERT
my $BRIN = 1;
my $DROP_CHECKPOINT = 0;
my $MOVES = 1;
my $STRESS = 0;

# Once per cluster, in database postgres.
sub setup_sql
{
	return <<'SQL';
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE ts1 LOCATION '';
CREATE TABLESPACE ts2 LOCATION '';
CREATE TABLE shared_t (id int PRIMARY KEY, n int, filler text) WITH (fillfactor = 70);
INSERT INTO shared_t SELECT g, 0, repeat('x', 60) FROM generate_series(1, 4000) g;
CREATE INDEX ON shared_t (n);
CREATE SEQUENCE shared_seq;
CREATE EXTENSION pg_buffercache;
CREATE TABLE queue (id bigserial, job text, p point, tags int[], q point);
INSERT INTO queue (job, p, tags, q) SELECT md5(g::text), point(g % 100, g / 100), ARRAY[g % 50, g % 7], point(g % 100, g / 100)
  FROM generate_series(1, 6000) g, generate_series(1, 3);
ALTER TABLE queue ADD PRIMARY KEY (id);
CREATE INDEX queue_hash ON queue USING hash (job);
CREATE INDEX queue_gist ON queue USING gist (p);
CREATE INDEX queue_gin ON queue USING gin (tags);
CREATE INDEX queue_spgist ON queue USING spgist (q);
VACUUM ANALYZE queue;
CREATE DATABASE tpl OID = 90000;
\c tpl
CREATE TABLE q (id int PRIMARY KEY, a int, b text);
INSERT INTO q SELECT g, g, md5(g::text) FROM generate_series(1, 3000) g;
CREATE INDEX q_b ON q USING hash (b);
SQL
}

# One of these; true with that probability; a whole number from $lo to $hi.
sub pick { return $_[ int rand @_ ]; }
sub chance { return rand() < $_[0]; }
sub number { my ($lo, $hi) = @_; return $lo + int rand($hi - $lo + 1); }

sub create_table
{
	my ($t) = @_;
	my $unlogged = chance(0.15) ? 'UNLOGGED ' : '';
	my @with;
	push @with, 'fillfactor = ' . number(30, 100) if chance(0.4);
	push @with, 'autovacuum_enabled = off' if chance(0.3);
	my $with = @with ? ' WITH (' . join(', ', @with) . ')' : '';
	my $ts = chance(0.15) ? ' TABLESPACE ' . pick('ts1', 'ts2') : '';
	return
	  "CREATE ${unlogged}TABLE IF NOT EXISTS $t (id int, a int, b text, arr int[], p point, big text)$with$ts;";
}

sub insert_rows
{
	my ($t, $max) = @_;
	my $n = chance(0.3) ? number(1, 30) : number(30, $max // $ROWS);
	return "INSERT INTO $t SELECT g, g % 97, md5(g::text), ARRAY[g % 13, g % 101], "
	  . "point(random(), random()), CASE WHEN g % 50 = 0 THEN repeat(md5(g::text), 100) END "
	  . "FROM generate_series(1, $n) g;";
}

sub create_index
{
	my ($t, $prefix) = @_;
	my $conc = chance(0.08) ? 'CONCURRENTLY ' : '';
	my $ts = chance(0.1) ? ' TABLESPACE ts1' : '';
	$prefix //= "${t}_";
	return "CREATE INDEX ${conc}IF NOT EXISTS $prefix" . pick(
		"a ON $t (a)$ts", "b ON $t (b)$ts", "id ON $t (id)", "ab ON $t (a, b) WHERE id % 3 = 0",
		"arr ON $t USING gin (arr)$ts", "arrf ON $t USING gin (arr) WITH (fastupdate = off)",
		"p ON $t USING gist (p)$ts", "sp ON $t USING spgist (p)",
		$BRIN ? "br ON $t USING brin (id) WITH (pages_per_range = 2, autosummarize = on)" : "id2 ON $t (id)",
		"h ON $t USING hash (b)", "sb ON $t USING spgist (b)") . ';';
}

sub some_rows
{
	my $m = pick(2, 3, 7, 31, 200);
	return sprintf('id %% %d = %d', $m, int rand $m);
}

sub modify
{
	my ($t) = @_;
	my $where = some_rows();
	return pick(
		"UPDATE $t SET a = a + 1 WHERE $where;",
		"UPDATE $t SET b = md5(b) WHERE $where;",
		"UPDATE $t SET p = point(random(), random()), arr = ARRAY[a, id, 5] WHERE $where;",
		"UPDATE $t SET big = (SELECT string_agg(md5((random() + g)::text), '') FROM generate_series(1, 150) g) WHERE id % 211 = " . number(0, 210) . ';',
		"DELETE FROM $t WHERE $where;",
		"DELETE FROM $t WHERE id > " . number(0, 2000) . ';');
}

sub read_rows
{
	my ($t) = @_;
	return pick(
		"SELECT count(*), max(b) FROM $t;",
		"SELECT count(*) FROM $t WHERE a = " . number(0, 96) . ';',
		"SET enable_seqscan = off; SELECT count(big) FROM $t WHERE a BETWEEN 5 AND 40; "
		  . "SELECT count(*) FROM $t WHERE b = md5('77'); SELECT count(*) FROM $t WHERE p <@ box(point(0, 0), point(0.2, 0.2)); RESET enable_seqscan;",
		"SELECT * FROM $t WHERE id % 50 = 1 FOR UPDATE;",
		"SELECT id FROM shared_t WHERE id % 37 = " . number(0, 36) . " FOR KEY SHARE;",
		"SELECT count(*) FROM pgbench_accounts WHERE aid % 3 = 0;");
}

sub maintain
{
	my ($t) = @_;
	my $statement = pick(
		"VACUUM $t;", "VACUUM $t;", "VACUUM (FREEZE, ANALYZE) $t;",
		"VACUUM (INDEX_CLEANUP on, DISABLE_PAGE_SKIPPING) $t;",
		"VACUUM FULL $t;", "CLUSTER $t USING ${t}_a;", "REINDEX TABLE $t;",
		"TRUNCATE $t;", "DROP TABLE $t;", "ANALYZE $t;",
		"ALTER TABLE $t SET TABLESPACE " . pick('ts1', 'ts2', 'pg_default') . ';',
		"ALTER INDEX ${t}_b SET TABLESPACE " . pick('ts1', 'pg_default') . ';',
		"ALTER TABLE $t SET " . pick('LOGGED', 'UNLOGGED') . ';',
		"REINDEX INDEX CONCURRENTLY ${t}_a;",
		"VACUUM shared_t;", "REINDEX TABLE shared_t;", "VACUUM pgbench_tellers;",
		"VACUUM pgbench_accounts;", "SELECT brin_summarize_new_values('${t}_br');",
		"SELECT gin_clean_pending_list('${t}_arr');");

	return $MOVES || $statement !~ /SET TABLESPACE/ ? $statement : "ANALYZE $t;";
}

sub copy_rows
{
	my ($t) = @_;
	my $out = "COPY $t (id, a, b) FROM stdin;\n";
	$out .= join("\t", $_, $_ % 89, "copy $_") . "\n" for 1 .. number(1, 400);
	return "$out\\.\n";
}

# Transactions that do several things, and end in different ways.
sub transaction
{
	my ($t, $new, $gid) = @_;
	my $end = pick('COMMIT;', 'COMMIT;', 'COMMIT;', 'ROLLBACK;');
	return pick(
		# relations that are created and filled in one transaction: no WAL if minimal
		"BEGIN; DROP TABLE IF EXISTS $new; " . create_table($new) . insert_rows($new)
		  . create_index($new) . modify($new) . insert_rows($new, 100) . $end . modify($new),
		"BEGIN; TRUNCATE $t; " . insert_rows($t) . insert_rows($t, 50) . $end . modify($t),
		"BEGIN; " . insert_rows($t, 300) . 'SAVEPOINT a; ' . modify($t)
		  . 'ROLLBACK TO a; ' . modify($t) . 'SAVEPOINT b; ' . insert_rows($t, 200)
		  . "RELEASE b; $end",
		"BEGIN; " . modify($t) . insert_rows($t, 300) . "PREPARE TRANSACTION '$gid';",
		"BEGIN; SAVEPOINT a; " . create_table($new) . insert_rows($new, 500)
		  . "ROLLBACK TO a; " . modify($t) . $end);
}

# Local buffers, pages that are evicted while others use them, and files that grow
# and shrink.
sub buffers
{
	my ($t) = @_;
	my $temp = 'temp_' . number(1, 3);
	return pick(
		"CREATE TEMP TABLE IF NOT EXISTS $temp (id int, b text); INSERT INTO $temp SELECT g, md5(g::text) FROM generate_series(1, " . number(1, 5000) . ') g;',
		"UPDATE $temp SET b = md5(b) WHERE id % 3 = 0; SELECT count(*) FROM $temp JOIN $t USING (id);",
		"TRUNCATE $temp;", "DROP TABLE $temp;",
		'SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE pinning_backends = 0 AND bufferid % 7 = ' . number(0, 6) . ';',
		"SELECT pg_buffercache_evict_relation('$t');", 'SELECT pg_buffercache_evict_all();',
		"INSERT INTO $t (id, b) SELECT 1000000 + g, repeat('x', 900) FROM generate_series(1, 3000) g; DELETE FROM $t WHERE id > 1000000; VACUUM (TRUNCATE) $t;");
}

# Databases: the same OID, and so the same file names, are used again.
sub databases
{
	my ($client) = @_;
	my $db = "d$client";
	my $oid = 91000 + 10 * $client;
	my $drop = "DROP DATABASE IF EXISTS $db WITH (FORCE);" . ($DROP_CHECKPOINT ? "\nCHECKPOINT;" : '');
	my @out = ($drop);
	my $n = number(1, 3);

	for my $i (1 .. $n)
	{
		push @out, "CREATE DATABASE $db OID = $oid TEMPLATE tpl STRATEGY "
		  . pick('file_copy', 'wal_log')
		  . (chance(0.2) ? ' TABLESPACE ts1' : '') . ';';
		push @out, "\\c $db",
		  "UPDATE q SET a = a + " . number(1, 1000) . " WHERE id % 2 = 0;",
		  'CREATE TABLE r AS SELECT * FROM q;',
		  'INSERT INTO q SELECT g, g, md5(g::text) FROM generate_series(3001, 4500) g;',
		  'SELECT count(*) FROM q;';
		push @out, 'VACUUM FULL q;' if chance(0.3);
		push @out, 'CHECKPOINT;' if chance(0.2);
		push @out, 'SELECT pg_sleep(0.05);' if chance(0.5);
		push @out, '\c postgres';
		if (chance(0.4))
		{
			my $ts = pick('ts1', 'ts2');
			push @out, "ALTER DATABASE $db SET TABLESPACE $ts;";
			push @out, "\\c $db", 'UPDATE q SET a = a + 1 WHERE id % 3 = 0;',
			  'SELECT count(*) FROM r;', '\c postgres';
			push @out, "ALTER DATABASE $db SET TABLESPACE pg_default;" if chance(0.6);
		}
		push @out, $drop if $i < $n || chance(0.3);
	}
	return join("\n", @out) . "\n";
}

# Consumers and a producer of a queue, as scripts for pgbench: name => [ weight,
# text ].  Each consumer deletes rows that it finds by one of the indexes, one by
# one, so these fill with entries of deleted rows, which scans mark as dead.  The
# producer pauses for longer than asynchronous commits take to become durable: in
# between most index pages are changed by such marks only.
sub queue_scripts
{
	my $take = sub { return "DELETE FROM queue WHERE id = (SELECT id FROM queue WHERE $_[0] FOR UPDATE SKIP LOCKED LIMIT 1);\n" };

	return (
		first => [ 6, $take->('id > 0 ORDER BY id') ],
		hash => [ 4, "\\set n random(1, 6000)\n" . $take->('job = md5(:n::text)') x 2 ],
		gist => [ 4, "\\set n random(0, 99)\n" . $take->('p <@ box(point(:n, 0), point(:n, 60))') x 2 ],
		spgist => [ 1, "\\set n random(0, 99)\n" . $take->('q <@ box(point(:n, 0), point(:n, 60))') ],
		gin => [ 1, "\\set n random(0, 49)\nBEGIN;\nSET LOCAL enable_bitmapscan = on;\n" . $take->('tags @> ARRAY[:n::int]') . "COMMIT;\n" ],
		put => [ 0, "\\set ms random(300, 1500)\n\\sleep :ms ms\n"
			  . 'INSERT INTO queue (job, p, tags, q) SELECT md5(g::text), point(g % 100, g / 100), ARRAY[g % 50, g % 7], point(g % 100, g / 100) FROM generate_series(1, 6000) g WHERE random() < 0.3;'
			  . "\n" ]);
}

# Statements for one session.
sub sql_stream
{
	my ($client, $steps, $load) = @_;
	$ROWS = $load->{rows};
	$BRIN = $load->{brin};
	$DROP_CHECKPOINT = $load->{drop_checkpoint};
	$MOVES = $load->{moves} // 1;
	$STRESS = $load->{stress};
	my @out = ("SET lock_timeout = '1s';", 'SET client_min_messages = error;');
	my @prepared;
	my $serial = 0;

	push @out, 'SET temp_buffers = 100;' if $STRESS;
	push @out, 'SET synchronous_commit = ' . pick('off', 'local', 'on') . ';';
	for my $k (1 .. $TABLES)
	{
		my $t = "t${client}_$k";
		push @out, create_table($t), insert_rows($t), create_index($t), create_index($t);
	}
	for (1 .. $steps)
	{
		my $t = chance(0.9) ? "t${client}_" . number(1, $TABLES) : 't' . number(0, 4) . '_1';
		my $own = $t =~ /^t${client}_/;
		push @out, buffers($t) if $STRESS && chance(0.3);
		my $x = rand();
		if ($x < 0.08) { push @out, $own ? create_table($t) : (), insert_rows($t) }
		elsif ($x < 0.20) { push @out, insert_rows($t) }
		elsif ($x < 0.45) { push @out, modify($t) }
		elsif ($x < 0.58) { push @out, read_rows($t) }
		elsif ($x < 0.70) { push @out, maintain($t) }
		elsif ($x < 0.77) { push @out, create_index($t, $own ? undef : "${t}_by${client}_") }
		elsif ($x < 0.81) { push @out, copy_rows($t) }
		elsif ($x < 0.90)
		{
			my $gid = "p${client}_" . $serial++ . '_' . int rand 1e9;
			my $sql = transaction($t, "n${client}_" . number(1, 2), $gid);
			push @out, $sql;
			push @prepared, $gid if $sql =~ /PREPARE TRANSACTION/;
		}
		elsif ($x < 0.93)
		{
			push @out, pick('COMMIT', 'COMMIT', 'ROLLBACK') . " PREPARED '" . shift(@prepared) . "';"
			  if @prepared;
		}
		elsif ($x < 0.96)
		{
			push @out, 'UPDATE shared_t SET n = n + 1 WHERE id % 41 = ' . number(0, 40) . ';',
			  "SELECT nextval('shared_seq');";
		}
		elsif ($x < 0.96 + $load->{databases}) { push @out, databases($client) }
		elsif ($x < 0.96 + $load->{databases} + $load->{checkpoints}) { push @out, 'CHECKPOINT;' }
		elsif ($x > 0.997) { push @out, sprintf('SELECT pg_sleep(%.3f);', rand 0.2) }

		# never more than a few, or nothing can be vacuumed
		push @out, "ROLLBACK PREPARED '" . shift(@prepared) . "';" if @prepared > 3;
	}
	return join("\n", @out) . "\n";
}

1;
