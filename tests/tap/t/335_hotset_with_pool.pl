# Copyright (c) 2026, the persistent-cache developers

# pg_hotset and the cache together: a standby that restarts keeps its pages, in
# both modes and after a crash in mode always, and reads only what is missing.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', mode => undef, init => { allows_streaming => 1 });

$primary->start;
$primary->safe_psql('postgres', <<'EOF');
CREATE EXTENSION pg_hotset;
CREATE EXTENSION pg_buffercache;
CREATE EXTENSION pg_prewarm;
CREATE TABLE hot AS SELECT i, repeat('x', 1500) AS filler FROM generate_series(1, 5000) i;
CREATE TABLE late AS SELECT i, repeat('x', 1500) AS filler FROM generate_series(1, 500) i;
VACUUM (FREEZE);
EOF
$primary->restart;
$primary->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache,pg_hotset'\npg_hotset.interval = 1s\n");
add_pool($standby);
$standby->start;

# How many pages of the table does this server have in shared buffers?
sub pages
{
	my ($node, $table) = @_;

	return $node->safe_psql('postgres',
		"SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('$table') AND relforknumber = 0");
}

sub wait_for_pages
{
	my ($table, $name) = @_;
	my $expected = pages($primary, $table);

	ok( $standby->poll_query_until(
			'postgres', "SELECT count(*) = $expected FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('$table') AND relforknumber = 0"),
		"$name: all $expected pages of $table that the primary has are here");
}

$primary->safe_psql('postgres', "SELECT pg_prewarm('hot') FROM generate_series(1, 3)");
wait_for_pages('hot', 'first start');

foreach my $case (
	[ 'planned_restart', 'clean stop', sub { $standby->stop } ],
	[ 'always', 'clean stop', sub { $standby->stop } ],
	[ 'always', 'kill -9', sub { kill_seen($standby) } ])
{
	my ($mode, $name, $stop) = @$case;
	my ($offset, $valid, $outcome);

	if ($standby->safe_psql('postgres', 'SHOW pcache.mode') ne $mode)
	{
		$standby->stop;
		set_mode($standby, $mode);
		$standby->start;
		wait_for_pages('hot', "$mode, first start");
	}
	$standby->safe_psql('postgres', 'CHECKPOINT');
	$valid = permanent_buffers($standby);
	$stop->();
	# The primary has pages by then that the standby has not.
	$primary->safe_psql('postgres', "SELECT pg_prewarm('late')");
	$offset = log_offset($standby);
	$standby->start;
	$outcome = start_outcome($standby, $offset);
	is($outcome->{start}, 'warm', "$mode, $name: warm") or diag($outcome->{reason});
	cmp_ok($outcome->{kept}, '>=', 0.9 * $valid, "$mode, $name: kept $outcome->{kept} of $valid pages");
	wait_for_pages('hot', "$mode, $name");
	wait_for_pages('late', "$mode, $name");
	cmp_ok($standby->safe_psql('postgres', 'SELECT pages_read FROM pg_stat_hotset'),
		'<', pages($standby, 'hot') / 2, "$mode, $name: only what was missing is read");
	$primary->safe_psql('postgres',
		"SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('late')");
	$standby->safe_psql('postgres',
		"SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('late')");
}

is_clean_standby();

# Nothing in shared buffers differs from the files of the primary.
sub is_clean_standby
{
	$primary->wait_for_replay_catchup($standby);
	is( $standby->safe_psql('postgres', 'SELECT count(*), sum(hashtext(t::text)) FROM hot t'),
		$primary->safe_psql('postgres', 'SELECT count(*), sum(hashtext(t::text)) FROM hot t'),
		'the contents are those of the primary');
}

$standby->stop;
$primary->stop;
done_testing();
