# Copyright (c) 2026, the persistent-cache developers

# Nothing stays in shared buffers of a file that replay removes or cuts while a
# worker reads it.  Replay waits for no more than one slice, and the worker for
# no lock.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use Hotset;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'Injection points not supported by this build' if ($ENV{enable_injection_points} // '') ne 'yes';

my $primary = new_primary('primary');

plan skip_all => 'Extension injection_points not installed' if !$primary->check_extension('injection_points');
$primary->safe_psql('postgres', 'CREATE EXTENSION injection_points');
my $standby = new_standby('standby', $primary, conf => "max_standby_streaming_delay = -1\npg_hotset.interval = 0\n");
$standby->start;

# How many pages of this file are in shared buffers, from this block on?
sub left_behind
{
	my ($file, $from) = @_;

	return $standby->safe_psql('postgres',
		"SELECT count(*) FROM pg_buffercache WHERE relfilenode = $file AND relblocknumber >= $from");
}

sub set_interval
{
	$standby->append_conf('postgresql.conf', "pg_hotset.interval = $_[0]\n");
	$standby->reload;
}

# Let the worker stop at a point while it is about to read the table, do
# something on the primary, and let it go on.  Returns the table's old file.
sub while_reading
{
	my ($point, $table, %arg) = @_;
	my $file;

	add_table($primary, $table, 100);
	$primary->safe_psql('postgres', $arg{before}) if $arg{before};
	$file = $primary->safe_psql('postgres', "SELECT pg_relation_filenode('$table')");
	$primary->safe_psql('postgres', "SELECT pg_prewarm('$table')");
	$primary->wait_for_replay_catchup($standby);
	# everything but this table is warm already
	set_interval('1s');
	wait_until($standby, 'pages_here = list_pages OR percent_warm > 99', "$point, $table: warm");
	wait_for_rounds($standby, 2);
	set_interval('0');
	wait_until($standby, "state = 'off'", "$point, $table: off");
	$standby->safe_psql('postgres', "SELECT pg_buffercache_evict(bufferid) FROM pg_buffercache WHERE relfilenode = $file");
	is(left_behind($file, 0), 0, "$point, $table: not in shared buffers");
	$standby->safe_psql('postgres', "SELECT injection_points_attach('$point', 'wait')");
	set_interval('1s');
	$standby->wait_for_event('pg_hotset worker', $point);
	$arg{meanwhile}->();
	set_interval('0');
	$standby->safe_psql('postgres', "SELECT injection_points_detach('$point'); SELECT injection_points_wakeup('$point')");
	wait_until($standby, "state = 'off'", "$point, $table: the round has ended");
	$primary->wait_for_replay_catchup($standby);
	return $file;
}

my $delete_end = 'DELETE FROM %s WHERE i > 200';
my @cases = (
	[ 'dropped', 'DROP TABLE %s' ],
	[ 'truncated', 'TRUNCATE %s' ],
	[ 'rewritten', 'VACUUM FULL %s' ],
	[ 'moved', 'ALTER TABLE %s SET UNLOGGED' ],
	[ 'cut', 'VACUUM (TRUNCATE) %s', $delete_end, 60 ],);

# The primary changes a table of this name meanwhile, as the case says, and then
# something else is done.
sub change_while_reading
{
	my ($point, $table, $case, $then) = @_;
	my (undef, $command, $before, $from) = @$case;
	my $file = while_reading(
		$point, $table,
		before => $before && sprintf($before, $table),
		meanwhile => sub {
			$primary->safe_psql('postgres', sprintf($command, $table));
			$then->();
		});

	is(left_behind($file, $from // 0), 0, "$point, $table: nothing is left behind");
}

# Replay changes it after the worker has looked the relation up.
foreach my $case (@cases)
{
	change_while_reading('pg-hotset-before-lock', $case->[0], $case, sub { $primary->wait_for_replay_catchup($standby) });
}

# Replay has to wait for the worker, and removes what it has read.
foreach my $case (@cases)
{
	my $table = "$case->[0]_locked";

	change_while_reading(
		'pg-hotset-locked',
		$table, $case,
		sub {
			ok( $standby->poll_query_until(
					'postgres', "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE backend_type = 'startup'"),
				"$table: replay waits for the lock");
		});
}

# ALTER SEQUENCE replaces the file under a lock that replay does not take.
$primary->safe_psql('postgres', "CREATE SEQUENCE counter; SELECT nextval('counter')");
my $counter = $primary->safe_psql('postgres', "SELECT pg_relation_filenode('counter')");
$primary->wait_for_replay_catchup($standby);
$standby->safe_psql('postgres', "SELECT pg_buffercache_evict(bufferid) FROM pg_buffercache WHERE relfilenode = $counter");
my $skipped = stat_of($standby, 'pages_skipped');
set_interval('1s');
wait_until($standby, "pages_skipped > $skipped", 'a sequence is skipped');
is(left_behind($counter, 0), 0, '... and not read');
set_interval('0');
$primary->safe_psql('postgres', 'DROP SEQUENCE counter');

# Whoever has locked a relation is not waited for.
add_table($primary, 'held', 100);
$primary->safe_psql('postgres', "SELECT pg_prewarm('held')");
my $holder = $primary->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE held IN ACCESS EXCLUSIVE MODE');
# The commit writes what tells the standby of the lock.
$primary->safe_psql('postgres', 'CREATE TABLE flushed ()');
$primary->wait_for_replay_catchup($standby);
$standby->safe_psql('postgres',
	"SELECT pg_buffercache_evict(bufferid) FROM pg_buffercache WHERE relfilenode = " . $primary->safe_psql('postgres', "SELECT oid FROM pg_class WHERE relname = 'held'"));
$skipped = stat_of($standby, 'pages_skipped');
set_interval('1s');
wait_until($standby, "pages_skipped >= $skipped + 100", 'a locked relation is skipped');
wait_for_rounds($standby, 1);
$holder->query_safe('COMMIT');
$holder->quit;
$primary->wait_for_replay_catchup($standby);
is_warm($standby, $primary, 'no longer locked', 'held');

# A thousand relations are dropped and created while it warms.
my $make = <<'EOF';
DO $$ BEGIN FOR n IN 1..1000 LOOP
	EXECUTE format('CREATE TABLE many_%s AS SELECT %s AS n', n, n);
END LOOP; END $$;
EOF
my $drop = <<'EOF';
DO $$ BEGIN FOR n IN 1..1000 LOOP
	EXECUTE format('DROP TABLE many_%s', n);
	IF n % 50 = 0 THEN COMMIT; END IF;
END LOOP; END $$;
EOF
$primary->append_conf('postgresql.conf', "max_locks_per_transaction = 2000\n");
$standby->append_conf('postgresql.conf', "max_locks_per_transaction = 2000\n");
$standby->stop;
$primary->restart;
$standby->start;
$primary->safe_psql('postgres', $make);
$primary->wait_for_replay_catchup($standby);
set_interval('1s');
wait_until($standby, 'lists > 0', 'there is a list');
foreach my $round (1 .. 3)
{
	$standby->safe_psql('postgres', 'SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE relfilenode > 16384');
	$primary->safe_psql('postgres', $drop);
	$primary->safe_psql('postgres', $make);
}
$primary->safe_psql('postgres', $drop);
$primary->wait_for_replay_catchup($standby);
wait_for_rounds($standby, 2);
is( $standby->safe_psql('postgres', <<'EOF'),
SELECT count(*) FROM pg_buffercache b WHERE reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database()) AND
	relfilenode > 16384 AND NOT EXISTS (SELECT FROM pg_class WHERE pg_relation_filenode(oid) = b.relfilenode)
EOF
	0,
	'of a thousand relations that are gone, nothing is left behind');

# A database that is dropped while it is read
$primary->safe_psql('postgres', 'CREATE DATABASE gone');
$primary->safe_psql('gone', 'CREATE EXTENSION pg_prewarm');
add_table($primary, 'hot', 100, database => 'gone');
$primary->safe_psql('gone', "SELECT pg_prewarm('hot')");
$primary->wait_for_replay_catchup($standby);
set_interval('0');
wait_until($standby, "state = 'off'", 'off');
my $gone = $primary->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'gone'");
$standby->safe_psql('postgres', "SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE reldatabase = $gone");
$standby->append_conf('postgresql.conf', "pg_hotset.max_rate = 1\n");
set_interval('1s');
$standby->wait_for_event('pg_hotset worker', 'Extension');
$primary->safe_psql('postgres', 'DROP DATABASE gone');
$primary->wait_for_replay_catchup($standby);
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_buffercache WHERE reldatabase = $gone"),
	0, 'of a dropped database, nothing is left behind');
wait_for_rounds($standby, 2);
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_buffercache WHERE reldatabase = $gone"),
	0, '... and nothing comes back');

$standby->stop;
$primary->stop;
done_testing();
