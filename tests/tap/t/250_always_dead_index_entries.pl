
# Copyright (c) 2026, the persistent-cache developers

# Mode always: an index entry is marked as dead (LP_DEAD) only once the WAL that
# made its row so is durable.  Otherwise a crash could lose the deletion of a
# row, but not the mark in the index page, which is set without WAL.

use strict;
use warnings FATAL => 'all';

use lib "$ENV{PCACHE_ROOT}/tests/torture";

use IndexCheck;
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my @kinds = qw(btree hash gist);
my %by = (
	btree => 'SELECT count(*) FROM %s WHERE id > 0',
	hash => 'SELECT sum((SELECT count(*) FROM %1$s WHERE h = i)) FROM generate_series(1, 1000) i',
	gist => 'SELECT count(*) FROM %s WHERE p <@ box(point(0, 0), point(2000, 2000))');

# How the heap page comes to say that a row is dead: by the header of the tuple,
# or, once the page was pruned, by a dead line pointer.  Pages are pruned if
# less than a tenth of them is free.
my %way = (
	headers => { room => 'DELETE FROM %s WHERE id %% 3 = 0; VACUUM %1$s' },
	pruned => { room => 'SELECT %s' });

my $node = new_node('main', mode => 'always', shared_buffers => '64MB',
	conf => 'wal_writer_delay = 10s');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION amcheck; CREATE EXTENSION pageinspect; CREATE EXTENSION pg_pcache; CREATE TABLE other (i int)');

for my $way (sort keys %way)
{
	my $t = "t_$way";
	my $name = $way;
	my $offset;

	make_table($node, $t, $way);
	my ($rows, $all) = rows($node, $t);

	# The deletion is committed, but in WAL buffers only.
	my $walwriter = stop_walwriter($node);
	my $lost = delete_rows($node, $t);
	scan($node, $t);
	is(lp_dead($node, $t, $_), 0, "$name: no entry of the $_ index is dead while WAL is not durable")
	  for @kinds;
	like(heap_state($node, $t), $way eq 'pruned' ? qr/^[1-9]\d* dead line pointers/ : qr/^0 dead line pointers, [1-9]/,
		"$name: the heap page says that rows are dead in the way that is tested");
	wait_until_sealed($node);
	is($node->safe_psql('postgres', "SELECT pg_current_wal_flush_lsn() < '$lost'"),
		't', "$name: WAL of the deletion is not durable at the crash");
	kill_all($node);
	$offset = log_offset($node);
	$node->start;
	is(start_outcome($node, $offset)->{start}, 'warm', "$name: warm start");
	is(kept($node, "${t}_$_"), 't', "$name: the $_ index was kept") for @kinds;
	is(join(' ', rows($node, $t)), "$rows $all", "$name: the deletion is lost, all rows are there");
	indexes_right($node, $t, $name);
	my ($rc, $out, $err) = $node->psql('postgres', "INSERT INTO $t SELECT * FROM $t WHERE id % 10 = 1 ORDER BY id LIMIT 1");
	like($err, qr/duplicate key value violates unique constraint/, "$name: a key that is there is not accepted again");

	# With durable WAL they are marked as ever, and survive a crash.
	$walwriter = stop_walwriter($node);
	delete_rows($node, $t);
	flush_wal($node);
	($rows, $all) = rows($node, $t);
	scan($node, $t);
	cmp_ok(lp_dead($node, $t, $_), '>', 10, "$name: entries of the $_ index are dead once WAL is durable")
	  for @kinds;
	flush_wal($node);    # with checksums, hints are logged
	wait_until_sealed($node);
	kill_all($node);
	$offset = log_offset($node);
	$node->start;
	is(start_outcome($node, $offset)->{start}, 'warm', "$name, durable: warm start");
	cmp_ok(lp_dead($node, $t, 'btree'), '>', 10, "$name, durable: dead entries were kept");
	is(join(' ', rows($node, $t)), "$rows $all", "$name, durable: contents are right");
	indexes_right($node, $t, "$name, durable");
}

# The deletion is durable, but the heap page was changed again: it might have been
# pruned, so the page's LSN counts, and not that of the commit.
{
	make_table($node, 't_other_row', 'headers');
	delete_rows($node, 't_other_row');
	flush_wal($node);
	stop_walwriter($node);
	$node->safe_psql('postgres', 'SET synchronous_commit = off; BEGIN; SELECT FROM t_other_row WHERE id % 10 = 4 FOR UPDATE; ROLLBACK');
	scan($node, 't_other_row');
	is(lp_dead($node, 't_other_row', $_), 0, "a later change: no entry of the $_ index is dead before it is durable, too")
	  for @kinds;
	flush_wal($node);
	scan($node, 't_other_row');
	cmp_ok(lp_dead($node, 't_other_row', $_), '>', 10, "a later change: durable, entries of the $_ index are dead")
	  for @kinds;
	kill_all($node);
	$node->start;
	indexes_right($node, 't_other_row', 'a later change');
}

# Rows whose insertion was rolled back: nothing has to be durable for them to be
# dead, and their entries are marked at once.
{
	make_table($node, 't_aborted', 'headers');
	my ($rows, $all) = rows($node, 't_aborted');
	stop_walwriter($node);
	$node->safe_psql('postgres', q{SET synchronous_commit = off; BEGIN; SAVEPOINT s;
		INSERT INTO t_aborted SELECT i, i - 500, point(i, i), repeat('x', 100) FROM generate_series(1101, 1200) i; ROLLBACK TO s; COMMIT});
	my $end = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	scan($node, 't_aborted');
	is($node->safe_psql('postgres', "SELECT pg_current_wal_flush_lsn() < '$end'"), 't', 'rolled back: WAL is not durable');
	cmp_ok(lp_dead($node, 't_aborted', $_), '>', 10, "rolled back: entries of the $_ index are dead at once")
	  for @kinds;
	kill_all($node);
	$node->start;
	is(join(' ', rows($node, 't_aborted')), "$rows $all", 'rolled back: contents are right');
	indexes_right($node, 't_aborted', 'rolled back');
}

# Where a crash makes the start cold, nothing is different from PostgreSQL; nor
# is it for tables whose pages are not kept, or have no WAL.
{
	make_table($node, 't_unlogged', 'headers', 'UNLOGGED');
	stop_walwriter($node);
	delete_rows($node, 't_unlogged');
	flush_wal($node);
	scan($node, 't_unlogged');
	cmp_ok(lp_dead($node, 't_unlogged', 'btree'), '>', 10, 'unlogged table: entries are dead');
	kill_all($node);
	set_mode($node, 'planned_restart');
	$node->start;
	make_table($node, 't_planned', 'pruned');
	my $walwriter = stop_walwriter($node);
	delete_rows($node, 't_planned');
	scan($node, 't_planned');
	cmp_ok(lp_dead($node, 't_planned', $_), '>', 10, "mode planned_restart: entries of the $_ index are dead at once")
	  for @kinds;
	kill 'CONT', $walwriter;
	$node->stop;
}
done_testing();

# A table with indexes of each kind that has dead entries, dirty in shared
# buffers, and all of its WAL durable.
sub make_table
{
	my ($server, $t, $way, $persistence) = @_;
	my $room = sprintf $way{$way}{room}, $way eq 'pruned' ? 1 : $t;

	$server->safe_psql('postgres', $_) for 'CHECKPOINT', 'SET synchronous_commit = on; ' . join('; ',
		'CREATE ' . ($persistence // '') . " TABLE $t (id int, h int, p point, filler text)",
		"INSERT INTO $t SELECT i, i, point(i, i), repeat('x', 100) FROM generate_series(1, 1000) i",
		"CREATE UNIQUE INDEX ${t}_btree ON $t (id)",
		"CREATE INDEX ${t}_hash ON $t USING hash (h)",
		"CREATE INDEX ${t}_gist ON $t USING gist (p)"), split(/; /, $room);

	# no hints are left to be set, and each index page is dirty: with checksums,
	# the first hint since a checkpoint would be logged
	scan($server, $t);
	$server->safe_psql('postgres', "SET synchronous_commit = on; INSERT INTO $t SELECT i, i, point(i, i), '' FROM generate_series(1001, 1003) i");
	$server->safe_psql('postgres', "SELECT count(*) FROM $t");
	flush_wal($server);
	return;
}

# Delete rows, and lock others in the same pages, which is logged, so that the
# page's LSN covers the commit and hint bits may be set.  The second transaction is
# rolled back, because the LSN of a commit is known for groups of transactions
# only.  Returns an LSN between both.
sub delete_rows
{
	my ($server, $t) = @_;
	my $lsn;

	$server->safe_psql('postgres', "SET synchronous_commit = off; DELETE FROM $t WHERE id % 10 = 1");
	$lsn = $server->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	$server->safe_psql('postgres', "SET synchronous_commit = off; BEGIN; SELECT FROM $t WHERE id % 10 = 5 FOR UPDATE; ROLLBACK");
	return $lsn;
}

# Twice: what was pruned by the first scan is seen by the second one.
sub scan
{
	my ($server, $t) = @_;

	for my $kind (@kinds, @kinds)
	{
		my $plan = sprintf $by{$kind}, $t;

		like($server->safe_psql('postgres', settings() . "EXPLAIN $plan"), qr/Index Scan using ${t}_$kind/, "a scan by ${t}_$kind")
		  or BAIL_OUT('the test tests nothing');
		$server->safe_psql('postgres', settings() . $plan);
	}
	return;
}

sub settings { return 'SET synchronous_commit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off;'; }

sub rows
{
	my ($server, $t) = @_;

	return split /\|/, $server->safe_psql('postgres',
		"SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*), sum(id) FROM $t");
}

# How many line pointers of an index are dead?
sub lp_dead
{
	my ($server, $t, $kind) = @_;

	return count_lp($server, "${t}_$kind");
}

sub count_lp
{
	my ($server, $relation) = @_;
	my $dead = 0;

	for my $hex (split /\n/, $server->safe_psql('postgres', qq{
SELECT encode(get_raw_page('$relation', b::int), 'hex')
FROM generate_series(0, pg_relation_size('$relation') / 8192 - 1) b}))
	{
		my $page = pack 'H*', $hex;
		my ($lower, $upper, $special) = unpack 'x12 SSS', $page;
		my $type = $relation =~ /hash$/ ? unpack('S', substr $page, $special + 12, 2) & 0xF : 1;

		# bitmap and metapage of a hash index, metapage of a btree
		next if $lower <= 24 || ($type != 1 && $type != 2);
		next if $relation =~ /btree$/ && unpack('S', substr $page, $special + 12, 2) & 8;
		$dead += grep { (($_ >> 15) & 3) == 3 } unpack 'L*', substr $page, 24, $lower - 24;
	}
	return $dead;
}

sub heap_state
{
	my ($server, $t) = @_;
	my $hinted = $server->safe_psql('postgres', qq{
SELECT count(*) FROM generate_series(0, pg_relation_size('$t') / 8192 - 1) b,
  heap_page_items(get_raw_page('$t', b::int))
WHERE lp_flags = 1 AND t_infomask & 1024 <> 0 AND t_infomask & 2048 = 0});

	return count_lp($server, $t) . " dead line pointers, $hinted tuples known to be deleted";
}

# pg_pcache_seal() would flush WAL.
sub wait_until_sealed
{
	my ($server) = @_;

	$server->poll_query_until('postgres', 'SELECT queue_length = 0 FROM pg_stat_pcache')
	  or BAIL_OUT('the sealer does not come to an end');
	return;
}

# Were all pages of this index kept over the last start?
sub kept
{
	my ($server, $index) = @_;

	return $server->safe_psql('postgres', qq{
SELECT kept > 0 AND kept >= pg_relation_size('$index') / 8192 - 1 FROM pg_pcache_relations
WHERE relfilenode = pg_relation_filenode('$index') AND relforknumber = 0});
}

# So that nothing makes asynchronous commits durable.
sub stop_walwriter
{
	my ($server) = @_;
	my $pid = $server->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");

	kill 'STOP', $pid or BAIL_OUT('no walwriter');
	return $pid;
}

sub flush_wal
{
	my ($server) = @_;

	$server->safe_psql('postgres', 'SET synchronous_commit = on; INSERT INTO other VALUES (1)');
	return;
}

sub indexes_right
{
	my ($server, $t, $name) = @_;
	my $result = index_check(sub { return $server->safe_psql($_[0], $_[1]) }, 'postgres', writable => 1);

	is_deeply($result->{problems}, [], "$name: each index finds what a sequential scan finds");
	is_deeply($result->{unforced}, [], "$name: all indexes could be asked");
	cmp_ok($result->{checked}, '>=', 3, "$name: $result->{checked} indexes checked");
	my ($rc, $out, $err) = $server->psql('postgres', "SELECT bt_index_parent_check('${t}_btree', true, true, true)");
	is($err, '', "$name: amcheck finds all rows in the btree, once");
	return;
}
