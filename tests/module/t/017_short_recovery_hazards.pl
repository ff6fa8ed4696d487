
# Copyright (c) 2026, the persistent-cache developers

# What may go wrong with pages that pcache.recovery = short keeps, where nobody has to be
# stopped at a place in the code (see 011_worst_moment.pl for that).

use strict;
use warnings FATAL => 'all';

use PCacheKilled;
use PCacheModule;
use PCache::Wal qw(lsn_number);
use PCacheMoment qw(start_held);
use PostgreSQL::Test::Utils;
use Test::More;

$ENV{PCACHE_RECOVERY} //= 'short';
my $node = module_node('main', mode => 'always', conf => "wal_writer_delay = 10s\nbgwriter_delay = 10s\nautovacuum = off\nwal_log_hints = off\n");
run_command([ 'pg_checksums', '--disable', '-D', $node->data_dir ]);
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION IF NOT EXISTS pg_prewarm; CREATE EXTENSION IF NOT EXISTS pg_buffercache;
CREATE TABLE big WITH (fillfactor = 10) AS SELECT i AS id, repeat('b', 500) AS s FROM generate_series(1, 3300) i;
CREATE TABLE m (id int, s text);
CREATE TABLE other AS SELECT 1 AS id});

# Kill the server, and start it again.  Returns the outcome, and what it says of young pages.
sub start_killed
{
	my ($offset, $outcome);

	kill_all($node);
	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	return ($outcome, shortened($outcome));
}

# ------------------------------------------------------------------------------------
# The kernel has not written what it was given (EIO), and nobody has synced the file, so
# nobody knows.  Redo mends it, if it writes each page that was changed behind the redo point.

{
	my ($path, $old);

	$node->safe_psql('postgres', $_) for q{INSERT INTO m SELECT i, repeat('s', 100) FROM generate_series(1, 1500) i},
	'SELECT count(*) FROM m', 'CHECKPOINT';
	$path = $node->data_dir . '/' . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('m')});
	$old = slurp_file($path);
	$node->safe_psql('postgres', $_) for 'DELETE FROM m WHERE id <= 1000', 'SELECT count(*) FROM m',
	# written, and read again
	q{SELECT pg_prewarm('big') FROM generate_series(1, 8)}, q{SELECT pg_prewarm('m')};
	is($node->safe_psql('postgres', q{SELECT count(*) > 0 AND count(*) FILTER (WHERE isdirty) = 0 FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('m') AND relforknumber = 0}),
		't', 'lost writes: the pages are clean');
	write_bytes($path, 0, $old);
	my ($outcome, $short) = start_killed();
	is($outcome->{start}, 'warm', 'lost writes: warm');
	note("lost writes: $short->{young} young pages");
	$node->stop;
	$node->append_conf('postgresql.conf', q{shared_preload_libraries = ''});
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM m'), '500', 'lost writes: what was deleted stays so');
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', q{'pg_pcache'});
	$node->stop;
}
$node->start;

# ------------------------------------------------------------------------------------
# A record that is skipped clears bits of the visibility map nevertheless.  The file of the map
# has them, and the map is not kept.

{
	my $full = q{SELECT i AS id, repeat('v', 1000) AS s FROM generate_series(1, 70) i};
	my ($right, %seen);

	# after VACUUM all pages have room for a row, but for those of v_across, whose last one has
	$node->safe_psql('postgres', "CREATE EXTENSION IF NOT EXISTS pg_visibility");
	for my $table (qw(v_insert v_delete v_hot v_across v_lock v_copy))
	{
		$node->safe_psql('postgres', "CREATE TABLE $table AS $full");
		$node->safe_psql('postgres', "DELETE FROM $table WHERE id % 7 = 0") if $table ne 'v_across';
		$node->safe_psql('postgres', "DELETE FROM $table WHERE id >= 67") if $table eq 'v_across';
		$node->safe_psql('postgres', "VACUUM (FREEZE) $table");
	}
	$node->safe_psql('postgres', 'CHECKPOINT');
	# the first record has an image of the map, where it names that
	$node->safe_psql('postgres', "DELETE FROM $_ WHERE id = 50") for qw(v_insert v_delete v_hot v_across v_lock v_copy);
	$node->safe_psql('postgres', $_) for q{INSERT INTO v_insert VALUES (100, 'new')}, 'DELETE FROM v_delete WHERE id = 1',
	  q{UPDATE v_hot SET s = 'new' WHERE id = 1}, q{UPDATE v_across SET s = repeat('w', 1000) WHERE id = 1},
	  'SELECT 1 FROM v_lock WHERE id = 1 FOR UPDATE', q{COPY v_copy FROM PROGRAM 'printf "100\\tnew\\n101\\tnew\\n"'};
	my $map = q{SELECT c.relname, v.* FROM pg_class c, pg_visibility(c.oid) v WHERE c.relname ~ '^v_' AND relkind = 'r' ORDER BY 1, 2};

	$right = $node->safe_psql('postgres', $map);
	$seen{ (split /\|/)[0] . ' ' . join '', (split /\|/)[ 2, 3 ] }++ for split /\n/, $right;
	is(join(', ', map { "$_: $seen{$_}" } grep { !/ tt$/ } sort keys %seen),
		'v_across ff: 3, v_copy ff: 2, v_delete ff: 2, v_hot ff: 2, v_insert ff: 2, v_lock ff: 1, v_lock tf: 1', 'map: bits were cleared');
	# WAL ends with this commit, and not within a record
	$node->safe_psql('postgres', 'UPDATE other SET id = 2');
	my ($outcome, $short) = start_killed();
	is($outcome->{start}, 'warm', 'map: warm');
	cmp_ok($short->{skipped}, '>=', 13, 'map: records are skipped');
	cmp_ok($short->{skipped} ? $short->{called} : 9, '<=', 2, 'map: almost all of them');
	is($node->safe_psql('postgres', $map), $right, 'map: the bits are cleared again');
}

# ------------------------------------------------------------------------------------
# The kill has cut a write off.  Redo reads the page for a record without an image, VISIBLE, and
# its LSN is new, so that of the page only the image after that tells what it is to be.

{
	my ($path, $old, $new);

	$node->safe_psql('postgres', $_) for q{CREATE TABLE torn AS SELECT i AS id, repeat('t', 100) AS s FROM generate_series(1, 600) i},
	  'SELECT count(*) FROM torn', 'CHECKPOINT';
	$path = $node->data_dir . '/' . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('torn')});
	$old = slurp_file($path);
	$node->safe_psql('postgres', $_) for 'VACUUM torn', 'DELETE FROM torn WHERE id % 3 = 0', q{SELECT pg_prewarm('big') FROM generate_series(1, 8)};
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('torn') AND relforknumber = 0}), '0',
		'torn: the pages are not in the pool');
	$node->safe_psql('postgres', 'UPDATE other SET id = 3');
	$new = slurp_file($path);
	for (my $at = 0; $at < length $new; $at += 8192)
	{
		substr($new, $at + 4096, 4096) = substr($old, $at + 4096, 4096);
	}
	write_bytes($path, 0, $new);
	my ($outcome, $short) = start_killed();
	cmp_ok($short->{young}, '>', 0, 'torn: there are young pages');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM torn'), '400', 'torn: images are restored');
	$node->stop;
}

# ------------------------------------------------------------------------------------
# A record that is not skipped has an image of a young page: VISIBLE, if hints are logged.  So
# the page is as it was then, and what comes after that has to be replayed.

{
	$node->append_conf('postgresql.conf', 'wal_log_hints = on');
	$node->start;
	$node->safe_psql('postgres', $_) for q{CREATE TABLE back AS SELECT i AS id, repeat('a', 100) AS s FROM generate_series(1, 600) i},
	  'SELECT count(*) FROM back', 'CHECKPOINT', 'VACUUM back', 'DELETE FROM back WHERE id % 3 = 0', 'UPDATE other SET id = 4';
	my ($outcome, $short) = start_killed();
	cmp_ok($short->{young}, '>=', 10, 'image of a young page: there are such pages');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM back'), '400', 'image of a young page: what comes after it is replayed');
	$node->stop;
}

# ------------------------------------------------------------------------------------
# WAL that the start has read is not there any more when redo comes to it.  So a page is ahead
# of what can be replayed, and the server must not go on with it.  If there is nothing at all to
# be replayed, nobody asks the library: the checkpoint at the end cannot flush WAL up to the page.

for my $case ([ 'WAL is changed', q{CHECKPOINT; UPDATE m SET s = 'before' WHERE id % 2 = 0}, qr/PANIC:  persistent cache: WAL ends at .*, but a page with LSN .* was kept/ ],
	[ 'all WAL is gone', undef, qr/redo is not required.*xlog flush request \S+ is not satisfied.*FATAL:  checkpoint request failed/s ])
{
	my ($name, $sql, $refusal) = @$case;
	my ($path, $at, $offset);
	my $content = sub { my ($server) = @_; return $server->safe_psql('postgres', 'SELECT count(*), sum(length(s)) FROM m') };

	# what is replayed begins with the first record after that of the last stop
	$node->start;
	$node->safe_psql('postgres', 'SELECT count(*) FROM m');
	$node->safe_psql('postgres', $_) for defined $sql ? split /; /, $sql : ();
	my $from = defined $sql ? 'pg_current_wal_insert_lsn()' : q{(SELECT redo_lsn FROM pg_control_checkpoint())};
	my $lsn = $node->safe_psql('postgres', "SELECT $from");
	($path, $at) = split /\|/, $node->safe_psql('postgres', "SELECT file_name, file_offset FROM pg_walfile_name_offset('$lsn')");
	$node->safe_psql('postgres', q{UPDATE m SET s = 'after' WHERE id % 3 = 0});
	kill_all($node);
	if (!defined $sql)
	{
		my ($records) = run_command([ 'pg_waldump', '-p' => $node->data_dir . '/pg_wal', '-s' => $lsn, '-n' => 2 ]);

		$at += lsn_number(($records =~ /lsn: ([0-9A-F\/]+)/g)[1]) - lsn_number($lsn);
	}
	$offset = log_offset($node);
	start_held($node, sub { write_bytes($node->data_dir . "/pg_wal/$path", $at, "\0" x 4096) });
	$node->wait_for_log(qr/database system is (?:shut down|ready to accept connections)|terminated by signal/, $offset);
	my $log = slurp_file($node->logfile, $offset);
	like($log, qr/persistent cache: [1-9]\d* of these pages are younger than the redo point/, "$name: there are young pages");
	like($log, $refusal, "$name: the server does not start");
	unlike($log, qr/ready to accept connections/, "$name: nobody connects");
	kill_all($node);
	my $right = oracle($node, code => $content);
	$offset = log_offset($node);
	$node->start;
	is(start_outcome($node, $offset)->{start}, 'cold', "$name: the next start is cold");
	is($content->($node), $right, "$name: the next start is right");
	$node->stop;
}

done_testing();
