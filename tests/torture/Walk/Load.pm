
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Load - tables whose contents can be judged at any moment, and what changes them

=head1 DESCRIPTION

Each transaction leaves the invariants true that invariants() asks for, so
every answer of a consistent snapshot has them:

  ledger    one row per transaction, numbered without gaps; counter.n is their number
  acct      what is taken from one account is given to another one: sum(v) = 0
  queue     qstat counts what each client put in and took out
  upd       one row per id; updated, deleted and inserted again in one transaction
  victim    never changed after the setup

=cut

package Walk::Load;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Time::HiRes qw(sleep time);

use Programs;
use Walk::Util;
use Workload;

our @EXPORT = qw(setup_statements start_load end_load run_load quiesce invariants ANSWER_SQL VICTIM_SQL);

our $UPD_ROWS = 1500;
our $VICTIM_ROWS = 1000;

sub setup_statements
{
	my ($server) = @_;
	my $clients = 24;
	return grep { !/pg_hotset/ || $server->has_hotset } split /;\n/, <<"SQL";
CREATE EXTENSION amcheck;
CREATE EXTENSION pg_visibility;
CREATE EXTENSION pg_buffercache;
CREATE EXTENSION pg_pcache;
CREATE EXTENSION pg_hotset;
CREATE TABLE counter (n int);
INSERT INTO counter VALUES (0);
CREATE TABLE ledger (seq int PRIMARY KEY, a int, b int, d int, filler text);
CREATE INDEX ledger_a ON ledger (a);
CREATE TABLE acct (id int PRIMARY KEY, v int, filler text) WITH (fillfactor = 80);
INSERT INTO acct SELECT g, 0, repeat('x', 60) FROM generate_series(1, 200) g;
CREATE TABLE qstat (client int PRIMARY KEY, produced bigint, taken bigint) WITH (fillfactor = 20);
INSERT INTO qstat SELECT g, 0, 0 FROM generate_series(0, $clients) g;
CREATE TABLE queue (id bigserial PRIMARY KEY, prio int, key text, p point, arr int[]);
CREATE INDEX queue_prio ON queue (prio);
CREATE INDEX queue_hash ON queue USING hash (key);
CREATE INDEX queue_gist ON queue USING gist (p);
CREATE INDEX queue_spgist ON queue USING spgist (p);
CREATE INDEX queue_gin ON queue USING gin (arr);
CREATE TABLE upd (id int PRIMARY KEY, a int, b text, p point, arr int[], filler text) WITH (fillfactor = 70);
INSERT INTO upd SELECT g, g % 97, md5(g::text), point(g, -g), ARRAY[g, g % 7], repeat('y', 100) FROM generate_series(1, $UPD_ROWS) g;
CREATE INDEX upd_a ON upd (a);
CREATE INDEX upd_b ON upd USING hash (b);
CREATE INDEX upd_p ON upd USING gist (p);
CREATE INDEX upd_sp ON upd USING spgist (p);
CREATE INDEX upd_arr ON upd USING gin (arr);
CREATE TABLE victim (id int PRIMARY KEY, filler text);
INSERT INTO victim SELECT g, repeat(md5(g::text), 8) FROM generate_series(1, $VICTIM_ROWS) g;
VACUUM ANALYZE victim;
CREATE TABLE flat (id int, filler text);
ALTER TABLE flat ALTER filler SET STORAGE PLAIN;
CREATE TABLESPACE ts1 LOCATION '';
CREATE TABLESPACE ts2 LOCATION '';
CREATE TABLE shared_t (id int PRIMARY KEY, n int, filler text) WITH (fillfactor = 70);
INSERT INTO shared_t SELECT g, 0, repeat('x', 60) FROM generate_series(1, 1000) g;
CREATE INDEX ON shared_t (n);
CREATE SEQUENCE shared_seq;
CHECKPOINT;
SQL
}

# One snapshot; all numbers that invariants() knows.
use constant ANSWER_SQL => q{
SELECT (SELECT n FROM counter), (SELECT count(*) FROM ledger), (SELECT coalesce(max(seq), 0) FROM ledger),
  (SELECT sum(v) FROM acct), (SELECT count(*) FROM acct), (SELECT sum(produced) FROM qstat), (SELECT sum(taken) FROM qstat),
  (SELECT count(*) FROM queue), (SELECT count(*) FROM upd), (SELECT count(DISTINCT id) FROM upd)};
use constant VICTIM_SQL => q{SELECT count(*), sum(hashtext(v::text)::bigint) FROM victim v};

# What is wrong with an answer, or nothing.
sub invariants
{
	my ($n, $rows, $max, $sum, $accounts, $produced, $taken, $queue, $upd, $ids) = map { $_ eq '' ? -1 : $_ } @_;
	my @bad;
	push @bad, "counter $n, ledger has $rows rows, last $max" if $n != $rows || $n != $max;
	push @bad, "sum of $accounts accounts is $sum" if $sum != 0 || $accounts != 200;
	push @bad, "queue has $queue rows, $produced put in, $taken taken" if $produced - $taken != $queue;
	push @bad, "upd has $upd rows, $ids ids" if $upd != $UPD_ROWS || $ids != $UPD_ROWS;
	return @bad;
}

my %SCRIPT = (
	tpcb => <<'SQL',
\set a random(1, 200)
\set b random(1, 200)
\set d random(-50, 50)
BEGIN;
UPDATE counter SET n = n + 1 RETURNING n \gset
INSERT INTO ledger VALUES (:n, :a, :b, :d, repeat('x', 120));
UPDATE acct SET v = v + :d WHERE id = :a;
UPDATE acct SET v = v - :d WHERE id = :b;
COMMIT;
SQL
	produce => <<'SQL',
WITH i AS (INSERT INTO queue (prio, key, p, arr) SELECT (random() * 1000)::int, md5((random() * 300)::int::text), point(random(), random()), ARRAY[g, (random() * 9)::int] FROM generate_series(1, 20) g RETURNING id)
UPDATE qstat SET produced = produced + (SELECT count(*) FROM i) WHERE client = :client_id;
SQL
	consume => <<'SQL',
WITH d AS (DELETE FROM queue WHERE id = (SELECT id FROM queue ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id)
UPDATE qstat SET taken = taken + (SELECT count(*) FROM d) WHERE client = :client_id;
SQL
	by_key => <<'SQL',
\set n random(0, 300)
WITH d AS (DELETE FROM queue WHERE id = (SELECT id FROM queue WHERE key = md5(:n::text) FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id)
UPDATE qstat SET taken = taken + (SELECT count(*) FROM d) WHERE client = :client_id;
SQL
	by_prio => <<'SQL',
\set n random(0, 1000)
WITH d AS (DELETE FROM queue WHERE id = (SELECT id FROM queue WHERE prio >= :n ORDER BY prio FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id)
UPDATE qstat SET taken = taken + (SELECT count(*) FROM d) WHERE client = :client_id;
SQL
	by_place => <<'SQL',
\set n random(0, 90)
WITH d AS (DELETE FROM queue WHERE id = (SELECT id FROM queue WHERE p <@ box(point(:n / 100.0, 0), point(:n / 100.0 + 0.1, 1)) FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id)
UPDATE qstat SET taken = taken + (SELECT count(*) FROM d) WHERE client = :client_id;
SQL
	update => <<'SQL',
\set id random(1, 1500)
UPDATE upd SET a = a + 1, b = md5(b), p = point(random(), random()) WHERE id BETWEEN :id AND :id + 5;
SQL
	hot => <<'SQL',
\set id random(1, 1500)
UPDATE upd SET filler = reverse(filler) WHERE id = :id;
SQL
	replace => <<'SQL',
\set id random(1, 1500)
WITH d AS (DELETE FROM upd WHERE id = :id RETURNING *) INSERT INTO upd SELECT id, a + 1, md5(b), p, arr || 3, filler FROM d;
SQL
	flat => <<'SQL',
\set n random(0, 700)
SELECT count(filler) FROM flat WHERE ctid IN (('(' || :n || ',1)')::tid, ('(' || :n || ',2)')::tid);
SQL
	read => <<'SQL',
\set id random(1, 1500)
SELECT * FROM upd WHERE id = :id;
SELECT count(*) FROM queue WHERE prio BETWEEN :id % 900 AND :id % 900 + 50;
SELECT sum(v) FROM acct;
SQL
	vacuum => "VACUUM queue; VACUUM upd; VACUUM ledger;\n",
	bulk => <<'SQL',
\set k random(1, 3)
BEGIN;
DROP TABLE IF EXISTS bulk_:client_id;
CREATE TABLE bulk_:client_id AS SELECT g AS id, g % 17 AS a, repeat(md5(g::text), 3) AS filler FROM generate_series(1, 3000 * :k) g;
CREATE INDEX ON bulk_:client_id (id);
COMMIT;
SELECT count(*) FROM bulk_:client_id;
SQL
);

# Which scripts, with which weight.
my %KIND = (
	tpcb => { tpcb => 1 },
	fill => { produce => 1 },
	queue => { produce => 1, consume => 8, by_key => 2, by_prio => 2, by_place => 2 },
	drain => { consume => 6, by_key => 4, by_prio => 3, by_place => 2 },
	update => { update => 3, hot => 3, replace => 2, read => 1 },
	mixed => { tpcb => 6, produce => 1, consume => 15, update => 3, hot => 3, replace => 3, read => 2 },
	bulk => { bulk => 1, read => 5 },
	read => { read => 1 },
	flat => { flat => 1 },);

# Sessions that go on until they are ended.  how: kind, sync, seed, clients.
sub start_load
{
	my ($c, %how) = @_;
	my $w = $c->{walk};
	my @pids;
	my $kind = $how{kind};
	return [] if $kind eq 'none';
	$w->{loads}++;
	if ($kind eq 'ddl')
	{
		srand $how{seed};
		for my $client (0 .. 1)
		{
			my $file = "$w->{dir}/load-$w->{loads}-$client.sql";
			my $sql = sql_stream($client, 400,
				{ rows => 300, brin => ($c->{conf}{full_page_writes} // 'on') eq 'on' ? 1 : 0, databases => 0, checkpoints => 0.002, drop_checkpoint => 1 });
			$sql =~ s/^SET synchronous_commit = .*$/SET synchronous_commit = $how{sync};/m;
			spew($file, $sql);
			push @pids, start_to("$w->{dir}/clients.out", "$w->{bin}/psql", '-XAtq', '-h', $w->{sockets}, '-p', $c->{port}, '-U', 'postgres', '-d', 'postgres', '-o', '/dev/null', '-f', $file);
		}
		return \@pids;
	}
	my @files;
	for my $script (sort keys %{ $KIND{$kind} })
	{
		my $file = "$w->{dir}/$script.pgbench";
		spew($file, $SCRIPT{$script});
		push @files, '-f', "$file\@$KIND{$kind}{$script}";
	}
	if ($how{vacuum})
	{
		spew("$w->{dir}/vacuum.pgbench", $SCRIPT{vacuum});
		push @files, '-f', "$w->{dir}/vacuum.pgbench\@1";
	}

	# bitmap scans mark no index entry as dead
	local %Programs::env = (PGOPTIONS => "-c synchronous_commit=$how{sync}" . ($kind =~ /queue|drain|mixed/ ? ' -c enable_seqscan=off -c enable_bitmapscan=off' : ''));
	push @pids, start_to("$w->{dir}/clients.out", "$w->{bin}/pgbench", '-n', '-h', $w->{sockets}, '-p', $c->{port}, '-U', 'postgres',
		'-c', $how{clients} // 4, '--random-seed', $how{seed}, $how{transactions} ? ('-t', $how{transactions}) : ('-T', 600),
		'-M', 'simple', '--max-tries=10', @files, 'postgres');
	return \@pids;
}

sub end_load
{
	my ($pids) = @_;
	for my $pid (@$pids)
	{
		kill 'KILL', -$pid;
		waitpid($pid, 0);
	}
	return;
}

# A load for some time, and away with what it prepared.
sub run_load
{
	my ($c, $seconds, %how) = @_;
	my $pids = start_load($c, %how);
	my $deadline = time + $seconds;
	sleep 0.02 while time < $deadline && !defined $c->ended;
	end_load($pids);
	quiesce($c);
	return;
}

# Nobody works any more, and nothing is prepared.
sub quiesce
{
	my ($c) = @_;
	return if !$c->{up};
	my ($session) = $c->connect or return;
	my $deadline = time + 30;
	sleep 0.01
	  while time < $deadline
	  && $session->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()}) > 0;
	return if $session->value('SELECT pg_is_in_recovery()') eq 't';
	for my $row (@{ ($session->query('SELECT gid FROM pg_prepared_xacts ORDER BY gid'))[0] })
	{
		$session->query("ROLLBACK PREPARED '$row->[0]'");
	}
	return;
}

1;
